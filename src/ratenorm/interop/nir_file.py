"""Reading an HDF5 file as plain dictionaries, within bounds: no links to elsewhere, no sizes that cost memory first."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from ratenorm.errors import FileFormatError
from ratenorm.interop.extras import needed
from ratenorm.interop.nir_export import SEAL
from ratenorm.io.files import SIZE_LIMIT

DEEPEST = 6
MOST_ITEMS = 200_000
MOST_VALUES = 2**28  # numbers in one file: 1 GiB of float32. VGG-16 on 224 x 224 has 0.6 of it
MOST_TEXT = 2**26  # characters of one text


def read_tree(path: Path) -> dict[str, Any]:
    """The node of a NIR file as nested dictionaries of arrays, numbers and texts; its seal, if it has one, checked."""
    data = unsealed(path, _bytes(path))
    h5py = needed("h5py")
    try:
        with h5py.File(io.BytesIO(data), "r") as file:
            if "node" not in file:
                raise ValueError("it has no group 'node'")
            return _Walk(h5py).group(file, "node", 0)
    except RecursionError as error:
        raise _not_nir(path, "it is nested too deeply") from error
    except Exception as error:  # the HDF5 library raises all kinds
        raise _not_nir(path, (str(error).splitlines() or [type(error).__name__])[0][:200]) from error


def unsealed(path: Path, data: bytes) -> bytes:
    """The bytes before the seal; FileFormatError where they are not those that were sealed."""
    body, seal, digest = data.rpartition(SEAL)
    if not seal:
        return data  # written by others
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise FileFormatError(
            f"Reading {path}: its checksum does not match its contents, so the file is damaged. Copy it again, or "
            "export it again."
        )
    return body


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise FileFormatError(f"Reading {path}: it has more than the {SIZE_LIMIT} bytes a NIR file may have.")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise FileFormatError(f"Reading {path}: there is no such file.") from error
    except OSError as error:
        raise FileFormatError(f"Reading {path}: {error.strerror or error}.") from error


def _not_nir(path: Path, why: str) -> FileFormatError:
    return FileFormatError(
        f"Reading {path}: it is not a NIR file, or it is damaged ({why}). Copy it again, or write it again with the "
        "program that made it."
    )


class _Walk:
    """One pass over a file that counts what it reads."""

    def __init__(self, h5py: Any) -> None:
        self.h5py, self.items, self.values = h5py, 0, 0

    def group(self, parent: Any, name: str, depth: int) -> dict[str, Any]:
        found = self.item(parent, name, depth)
        if not isinstance(found, dict):
            raise ValueError(f"{name!r} is not a group")
        return found

    def item(self, parent: Any, name: str, depth: int) -> Any:
        self.items += 1
        if depth > DEEPEST or self.items > MOST_ITEMS:
            raise ValueError(f"more than {DEEPEST} levels or {MOST_ITEMS} entries")
        if not isinstance(parent.get(name, getlink=True), self.h5py.HardLink):
            raise ValueError(f"{name!r} is a link to another place")
        found = parent[name]
        if isinstance(found, self.h5py.Group):
            return {str(key): self.item(found, key, depth + 1) for key in found}
        if not isinstance(found, self.h5py.Dataset):
            raise ValueError(f"{name!r} is neither a group nor a dataset")
        return self.dataset(name, found)

    def dataset(self, name: str, found: Any) -> Any:
        if found.external or found.is_virtual:
            raise ValueError(f"{name!r} keeps its values in another file")
        size = 1
        for length in found.shape or ():
            size *= int(length)
        self.values += size
        if found.shape is None or self.values > MOST_VALUES:
            raise ValueError(f"{name!r} has the shape {found.shape}; a file may hold {MOST_VALUES} numbers")
        if found.dtype.kind in "fiu" and found.dtype.itemsize <= 8:
            return found[()]
        if found.dtype.kind not in "SO" or found.dtype.itemsize > MOST_TEXT:
            raise ValueError(f"{name!r} holds {found.dtype}")
        return _texts(name, found[()])


def _texts(name: str, value: Any) -> Any:
    """A text, or a list of lists of texts (edges)."""
    if isinstance(value, np.ndarray):
        return [_texts(name, one) for one in value]
    if isinstance(value, bytes):
        value = value.decode("utf8")
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise ValueError(f"{name!r} is not a text")
    return value
