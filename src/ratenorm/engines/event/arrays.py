"""Arrays for the kernels: flat, and starting on a cache line."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
NOTHING: Array = np.zeros(0, np.float32)

_LINE = 64  # bytes


def zeros(count: int, dtype: Any) -> Array:
    """A flat array of zeros whose first entry starts a cache line: a vector load never straddles two."""
    return _on_a_line(np.zeros(count * np.dtype(dtype).itemsize + _LINE, np.uint8), count, dtype)


def unset(count: int, dtype: Any) -> Array:
    """The same with whatever was there."""
    return _on_a_line(np.empty(count * np.dtype(dtype).itemsize + _LINE, np.uint8), count, dtype)


def _on_a_line(raw: Array, count: int, dtype: Any) -> Array:
    kind = np.dtype(dtype)
    start = -address_of(raw) % _LINE
    return raw[start : start + count * kind.itemsize].view(kind)


def address_of(values: Array) -> int:
    """Where an array begins."""
    return int(values.__array_interface__["data"][0])


def aligned(values: Array) -> Array:
    """The values flat and starting on a cache line; a copy where they are not."""
    if values.flags.c_contiguous and address_of(values) % _LINE == 0:
        return values.reshape(-1)
    return copied(values)


def copied(values: Array) -> Array:
    """A copy, flat and starting on a cache line."""
    out = zeros(values.size, values.dtype)
    out[:] = values.reshape(-1)
    return out


def bit_positions() -> Array:
    """[256 * 8]: for each byte the positions of its set bits, in order."""
    table = np.zeros((256, 8), np.uint32)
    for byte in range(256):
        found = [bit for bit in range(8) if byte >> bit & 1]
        table[byte, : len(found)] = found
    return aligned(table)
