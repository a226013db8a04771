"""An image folder: one subfolder a class, PNG, JPEG or WebP inside."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch

from ratenorm.data.image_set import ImageSet
from ratenorm.errors import DataError, UsageError

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

T = TypeVar("T")

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
FORMATS = ("PNG", "JPEG", "WEBP")
GREY_MODES = ("1", "L", "LA")
COLOUR_MODES = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")
MAX_PIXELS = 2**26
"""Most pixels of one image (67 million): more is a mistake or a decompression bomb."""
MAX_BYTES = 2**32
"""Most bytes the whole set may take in memory (4 GiB)."""


def load_folder(
    path: str | os.PathLike[str],
    size: int | tuple[int, int] | None = None,
    classes: Sequence[str] | None = None,
    max_bytes: int = MAX_BYTES,
    channels: int | None = None,
) -> ImageSet:
    """The images under `path`/<class>/ as an ImageSet named after the folder, classes in alphabetical order.

    All images must have the same size, unless `size` (one number, or height and width) says what to resize
    them to; the aspect ratio is not kept. The set is grey if every image is, else RGB; transparency is
    dropped, and the rotation a camera noted (EXIF) is applied. Pass the `classes` of the training set to read
    a test folder with the same labels.
    `channels` says 1 (grey) or 3 (RGB) whatever the files are. Hidden files (a leading dot) and files beside the
    class folders that are not images are left alone; anything else that is not an image is an error.
    """
    folder = Path(path).expanduser()
    target = _target_size(size)
    found, names = _find_images(folder, classes)
    headers = [_guarded(_read_header, file) for file, _ in found]
    if channels is None:
        channels = 1 if all(mode in GREY_MODES for mode, _ in headers) else 3
    height, width = target or _common_size([file for file, _ in found], [shape for _, shape in headers])
    need = len(found) * channels * height * width
    if need > max_bytes:
        raise DataError(
            f"Loading the image folder {folder}: {len(found)} images of {channels}x{height}x{width} need "
            f"{need} bytes, the limit is {max_bytes}. Fix: a smaller size=, fewer images, or a larger "
            f"max_bytes."
        )
    images = torch.empty((len(found), channels, height, width), dtype=torch.uint8)
    decode = partial(_decode, channels=channels, size=(height, width), resize=target is not None)
    for index, (file, _) in enumerate(found):
        images[index] = _guarded(decode, file)
    labels = torch.tensor([label for _, label in found], dtype=torch.int64)
    return ImageSet(folder.resolve().name, images, labels, names)


PARTS = {"train": ("train",), "test": ("test", "val", "valid", "validation")}


def part_of(folder: str | os.PathLike[str], split: str) -> Path:
    """`folder`/train or `folder`/test (or val) where the folder has both; else the folder itself."""
    path = Path(folder).expanduser()
    found = {key: next((path / n for n in names if (path / n).is_dir()), None) for key, names in PARTS.items()}
    chosen = found[split]
    return path if None in found.values() or chosen is None else chosen


def _target_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1 or height * width > MAX_PIXELS:
        raise UsageError(
            f"Loading an image folder: size must be at least 1x1 and at most {MAX_PIXELS} pixels, got {size}."
        )
    return height, width


def _find_images(folder: Path, classes: Sequence[str] | None) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """Every image with its label, in the order of class and file name."""
    if not folder.is_dir():
        raise DataError(f"Loading the image folder {folder}: there is no such folder.")
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    if stray := [entry for entry in entries if entry.is_file() and entry.suffix.lower() in SUFFIXES]:
        raise DataError(
            f"Loading the image folder {folder}: {stray[0].name} lies beside the class folders, so its "
            f"class is unknown. Fix: move every image into a subfolder named after its class."
        )
    present = [entry for entry in entries if entry.is_dir()]
    if not present:
        raise DataError(
            f"Loading the image folder {folder}: it has no subfolders. Needed is one subfolder a class, "
            f"with the images inside: {folder.name}/cat/1.png, {folder.name}/dog/1.png."
        )
    names = tuple(classes) if classes is not None else tuple(entry.name for entry in present)
    if unknown := [entry.name for entry in present if entry.name not in names]:
        raise DataError(
            f"Loading the image folder {folder}: the subfolder {unknown[0]!r} is not among the classes {list(names)}."
        )
    found = [(file, names.index(entry.name)) for entry in present for file in _class_images(entry)]
    return found, names


def _class_images(folder: Path) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for file in files:
        if not file.is_file() or file.suffix.lower() not in SUFFIXES:
            raise DataError(
                f"Loading the image folder: {file} is not an image. Allowed in a class folder are files "
                f"ending in {', '.join(SUFFIXES)}. Fix: move it elsewhere."
            )
    if not files:
        raise DataError(f"Loading the image folder: the class folder {folder} has no images.")
    return files


def _open(file: Path) -> PilImage:
    """The opened, not yet decoded image. PIL is imported here, so that `import ratenorm` does without it."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(file, formats=FORMATS)


def _read_header(file: Path) -> tuple[str, tuple[int, int]]:
    """(mode, (height, width)) after the checks that need no decoding."""
    with _open(file) as image:
        mode, (width, height) = str(image.mode), image.size
        if width * height > MAX_PIXELS:
            raise DataError(
                f"Reading {file}: {width}x{height} pixels, the limit is {MAX_PIXELS}. Fix: scale the image down."
            )
        if mode not in GREY_MODES + COLOUR_MODES:
            raise DataError(
                f"Reading {file}: the pixel format {mode!r} is not supported, only 8 bits a channel (grey "
                f"or colour). Fix: save the image as 8-bit PNG."
            )
        if getattr(image, "is_animated", False):
            raise DataError(f"Reading {file}: it is an animation. Fix: save the frame that is meant.")
        turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)  # EXIF orientation: a quarter turn
    return mode, (width, height) if turned else (height, width)


def _common_size(files: list[Path], sizes: list[tuple[int, int]]) -> tuple[int, int]:
    for file, size in zip(files, sizes):
        if size != sizes[0]:
            raise DataError(
                f"Reading {file}: it is {size[0]}x{size[1]} (height x width), {files[0]} is "
                f"{sizes[0][0]}x{sizes[0][1]}. Fix: pass size= (--size) to resize all images."
            )
    return sizes[0]


def _decode(file: Path, channels: int, size: tuple[int, int], resize: bool) -> torch.Tensor:
    """[C, H, W] bytes of one image."""
    from PIL import Image, ImageOps

    with _open(file) as image:
        pixels = ImageOps.exif_transpose(image).convert("L" if channels == 1 else "RGB")
    if resize:
        pixels = pixels.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    content = bytearray(pixels.tobytes())
    return torch.frombuffer(content, dtype=torch.uint8).reshape(*size, channels).permute(2, 0, 1)


def read_picture(file: str | os.PathLike[str], channels: int, size: tuple[int, int]) -> torch.Tensor:
    """[C, H, W] bytes of one picture, brought to a size and to grey (1) or RGB (3)."""
    path = Path(file)
    if not path.is_file():
        raise DataError(f"Reading {path}: there is no such file.")
    _guarded(_read_header, path)
    return _guarded(partial(_decode, channels=channels, size=size, resize=True), path)


def _guarded(action: Callable[[Path], T], file: Path) -> T:
    """Run what reads a file with PIL; whatever it raises becomes a DataError that names the file."""
    try:
        return action(file)
    except DataError:
        raise
    # PIL's plugins raise OSError, SyntaxError, ValueError, struct.error, IndexError and more.
    except Exception as error:
        raise DataError(
            f"Reading {file}: not a readable PNG, JPEG or WebP image ({type(error).__name__}: {error}). "
            f"Fix: replace or remove the file."
        ) from error
