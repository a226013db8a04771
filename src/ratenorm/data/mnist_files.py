"""MNIST: embedded in the package (.xz), or the official files laid out by hand (plain or .gz)."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import BinaryIO, cast

from ratenorm.data.files import FileStatus, SetStatus, wrong_checksum
from ratenorm.data.idx import parse_idx
from ratenorm.data.image_set import ImageSet
from ratenorm.data.sets import MNIST, FileSpec, SetSpec, Split
from ratenorm.errors import DataError

EMBEDDED_FIX = "Fix: reinstall the package (pip install --force-reinstall ratenorm)."


class MissingFileError(DataError):
    """The file is not there at all (as opposed to damaged)."""


_UNPACK_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


def read_mnist(split: Split, root: Path | None, spec: SetSpec = MNIST) -> ImageSet:
    """One split: the embedded copy, or the official files under `root`/MNIST/raw where a root is given."""
    images_file, labels_file = spec.split_files(split)
    channels, height, width = spec.image_shape
    count = labels_file.limit - 8  # an IDX header of one dimension has 8 bytes
    read, fix = (_embedded, EMBEDDED_FIX) if root is None else (_reader(root / spec.folder, spec), spec.fix)
    images = parse_idx(read(images_file), (count, height, width), images_file.name, fix)
    labels = parse_idx(read(labels_file), (count,), labels_file.name, fix).long()
    if int(labels.max()) >= spec.class_count:
        raise DataError(
            f"Reading {labels_file.name}: found the label {int(labels.max())}, allowed are 0 to "
            f"{spec.class_count - 1}. {fix}"
        )
    classes = tuple(str(digit) for digit in range(spec.class_count))
    return ImageSet(spec.name, images.reshape(-1, channels, height, width), labels, classes)


def check_mnist(root: Path | None) -> SetStatus:
    """Unpack and check every file: the embedded ones, or those under `root`/MNIST/raw."""
    read = _embedded if root is None else _reader(root / MNIST.folder, MNIST)
    folder = Path(str(embedded_folder())) if root is None else root / MNIST.folder
    states = []
    for file in MNIST.files:
        try:
            read(file)
        except MissingFileError:
            states.append(FileStatus(file.name, "missing"))
        except DataError as error:
            states.append(FileStatus(file.name, "damaged", str(error).split(" Fix: ")[0]))
        else:
            states.append(FileStatus(file.name, "complete"))
    return SetStatus(MNIST.name, folder, tuple(states))


def embedded_folder() -> Traversable:
    return files("ratenorm.data").joinpath("mnist")


def _embedded(file: FileSpec) -> bytearray:
    source = embedded_folder().joinpath(f"{file.name}.xz")
    try:
        with source.open("rb") as packed, lzma.open(cast(BinaryIO, packed)) as stream:
            content = stream.read(file.limit + 1)
    except _UNPACK_ERRORS as error:
        raise DataError(f"Reading the embedded MNIST: {source} cannot be read ({error}). {EMBEDDED_FIX}") from error
    return _checked(file, content, f"the embedded {source}", EMBEDDED_FIX)


def _reader(folder: Path, spec: SetSpec) -> Callable[[FileSpec], bytearray]:
    def read(file: FileSpec) -> bytearray:
        plain, packed = folder / file.name, folder / f"{file.name}.gz"
        path = plain if plain.exists() else packed
        try:
            with path.open("rb") if path is plain else gzip.open(path) as stream:
                # One byte more than allowed shows a file that is too long without unpacking a bomb.
                content = cast(BinaryIO, stream).read(file.limit + 1)
        except FileNotFoundError as error:
            raise MissingFileError(f"Reading {spec.name}: {packed} is missing (so is {plain}). {spec.fix}") from error
        except _UNPACK_ERRORS as error:
            raise DataError(f"Reading {spec.name}: {path} cannot be read ({error}). {spec.fix}") from error
        return _checked(file, content, str(path), spec.fix)

    return read


def _checked(file: FileSpec, content: bytes, source: str, fix: str) -> bytearray:
    if file.size is not None and len(content) != file.size:
        found = f"{len(content)}" if len(content) < file.size else f"more than {file.size}"
        raise DataError(f"Reading {source}: {file.size} bytes were expected, found {found}. {fix}")
    if problem := wrong_checksum(content, file.sha256):
        raise DataError(f"Reading {source}: {problem}. {fix}")
    return bytearray(content)
