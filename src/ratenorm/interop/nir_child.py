"""Reads HDF5 files in a process of its own: `python -m ratenorm.interop.nir_child`. Imports neither torch nor nir.

The HDF5 library hangs or dies on some damaged files. So files without our seal are read here, one a line:

    in   {"file": "net.nir", "arrays": "/tmp/…/arrays.npz"}
    out  {"tree": …} or {"error": …}      arrays are {"array": number}, kept in the second file
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

DEEPEST = 6
MOST_ITEMS = 200_000
MOST_VALUES = 2**28  # numbers in one file: 1 GiB of float32. VGG-16 on 224 x 224 has 0.6 of it
MOST_TEXT = 2**26  # characters of one text
MEMORY = 8 * 2**30  # bytes of this process


def tree_of(file: Any, h5py: Any) -> dict[str, Any]:
    """The node of a NIR file as nested dictionaries of arrays, numbers and texts. Raises what HDF5 raises."""
    with h5py.File(file, "r") as opened:
        if "node" not in opened:
            raise ValueError("it has no group 'node'")
        return _Walk(h5py).group(opened, "node", 0)


class _Walk:
    """One pass over a file that counts what it reads: no links to elsewhere, no sizes that cost memory first."""

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
    if hasattr(value, "shape"):
        return [_texts(name, one) for one in value]
    if isinstance(value, bytes):
        value = value.decode("utf8")
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise ValueError(f"{name!r} is not a text")
    return value


def _without_arrays(tree: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(tree, dict):
        return {"group": {key: _without_arrays(value, arrays) for key, value in tree.items()}}
    if isinstance(tree, str | list):
        return {"text": tree}
    arrays[str(len(arrays))] = tree
    return {"array": str(len(arrays) - 1)}


def with_arrays(tree: Any, arrays: Any) -> Any:
    """The inverse of what is sent: a tree with its arrays in place."""
    if "group" in tree:
        return {key: with_arrays(value, arrays) for key, value in tree["group"].items()}
    return tree["text"] if "text" in tree else arrays[tree["array"]][()]


def main() -> None:
    """Answer requests until there are no more."""
    import h5py
    import numpy as np

    with contextlib.suppress(ImportError, ValueError, OSError):  # no such limit on some systems
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            arrays: dict[str, Any] = {}
            tree = _without_arrays(tree_of(request["file"], h5py), arrays)
            np.savez(request["arrays"], **arrays)
            answer: dict[str, Any] = {"tree": tree}
        except Exception as error:  # the HDF5 library raises all kinds
            answer = {"error": (str(error).splitlines() or [type(error).__name__])[0][:200]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
