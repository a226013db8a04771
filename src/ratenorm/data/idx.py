"""The IDX format of the MNIST files: a big-endian header (kind, sizes), then raw bytes.

- offset 0: 00 00 08 nd, that is two zero bytes, element type (08 = unsigned byte), number of dimensions;
- offset 4: nd sizes, uint32, big-endian;
- then the elements, last dimension fastest.
"""

from __future__ import annotations

import math
import struct

import torch

from ratenorm.errors import DataError

UNSIGNED_BYTE = 0x08


def parse_idx(content: bytes | bytearray, shape: tuple[int, ...], source: str, fix: str) -> torch.Tensor:
    """The uint8 tensor in `content`, which must have exactly this `shape`.

    The caller knows the shape it needs, so a header that lies about its sizes can neither allocate memory nor
    pass for another file. `source` and `fix` go into the error.
    """
    header = 4 + 4 * len(shape)
    if len(content) < header:
        raise DataError(
            f"Reading {source}: an IDX header of {header} bytes was expected, the file has only {len(content)}. {fix}"
        )
    zero, kind, dimensions = struct.unpack_from(">HBB", content)
    if (zero, kind, dimensions) != (0, UNSIGNED_BYTE, len(shape)):
        raise DataError(
            f"Reading {source}: an IDX file starts with bytes 00 00 08 {len(shape):02x} (unsigned bytes, "
            f"{len(shape)} dimensions), found {bytes(content[:4]).hex(' ')}. {fix}"
        )
    sizes = struct.unpack_from(f">{dimensions}I", content, 4)
    if sizes != shape:
        raise DataError(f"Reading {source}: the sizes {shape} were expected, the header says {sizes}. {fix}")
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise DataError(f"Reading {source}: {expected} bytes were expected, found {len(content)}. {fix}")
    # A bytearray is writable, so torch may share it instead of copying.
    buffer = content if isinstance(content, bytearray) else bytearray(content)
    return torch.frombuffer(buffer, dtype=torch.uint8, offset=header).reshape(shape)
