"""Progressive resolution: small images in the first part of a training cost less and teach almost as well."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional

from ratenorm.train.config import Stage1

_POOLS = (nn.AvgPool2d, nn.MaxPool2d)


def size_at(config: Stage1, step: int, steps: int) -> int:
    """The side that images are shrunk to at a step; 0: as they are."""
    return config.small_size if step < config.small_part * steps else 0


def shrunk(images: Tensor, side: int) -> Tensor:
    """Images with a shorter side of `side` pixels, smoothed before they are sampled; never enlarged."""
    shorter = min(images.shape[2:])
    if side == 0 or side >= shorter:
        return images
    size = [round(length * side / shorter) for length in images.shape[2:]]
    return functional.interpolate(images, size=size, mode="bilinear", antialias=True, align_corners=False)


@contextlib.contextmanager
def any_size(model: nn.Module) -> Iterator[None]:
    """Pools that round up, so that a map of odd size, or of one pixel, goes through a network made for larger ones.

    Where every map has an even size they are the same as pools that round down.
    """
    pools = [m for m in model.modules() if isinstance(m, _POOLS) and not m.ceil_mode]
    for pool in pools:
        pool.ceil_mode = True
    try:
        yield
    finally:
        for pool in pools:
            pool.ceil_mode = False
