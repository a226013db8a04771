"""Which pixel reaches which: convolutions and pools as lists of pairs, and pairs as segments.

A pair says that a spike at pixel `source` reaches pixel `target` over the weights of one tap, times `share`. Pairs of
one source whose targets and taps both count upwards by one lie side by side in memory, in the currents as in the
weights: they become one segment, and are added in one go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from ratenorm.graph.ops import AdaptiveAvgPool, AvgPool, Conv
from ratenorm.simulate.event.tables import Array

POOL_LIMIT = 4096  # pixels up to which a pool's windows are read off its response to every single pixel


@dataclass(frozen=True)
class Pairs:
    source: Array
    target: Array
    tap: Array
    share: Array

    @property
    def count(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Segments:
    """For source pixel p the segments first[p] … first[p + 1]: [target, tap, length] in pixels, and their shares."""

    first: Array
    rows: Array
    shares: Array


def conv_pairs(conv: Conv, space: tuple[int, ...]) -> Pairs:
    """Taps are numbered backwards, so that under stride 1 targets and taps grow together."""
    numbers = torch.arange(1, math.prod(space) + 1, dtype=torch.float64).view(1, 1, *space)
    padded = F.pad(numbers, conv.padding, conv.padding_mode)
    kernel = tuple(conv.weight.shape[2:])
    one = len(kernel) == 1
    if one:
        padded = padded.unsqueeze(2)
    kernel2, stride2, dilation2 = ((1, *v) if one else v for v in (kernel, conv.stride, conv.dilation))
    seen = F.unfold(padded, kernel2, dilation=dilation2, stride=stride2)[0].long()  # [taps, targets], 0 is padding
    tap, target = torch.nonzero(seen, as_tuple=True)
    source = seen[tap, target] - 1
    return Pairs(source.numpy(), target.numpy(), (len(seen) - 1 - tap).numpy(), np.ones(len(tap), np.float32))


def flat_pairs(pixels: int) -> Pairs:
    """A linear layer behind a flattening: every pixel reaches the one target over weights of its own."""
    numbers = np.arange(pixels)
    return Pairs(numbers, np.zeros_like(numbers), numbers, np.ones(pixels, np.float32))


def same_pairs(pixels: int) -> Pairs:
    """Every pixel reaches itself."""
    numbers = np.arange(pixels)
    return Pairs(numbers, numbers, np.zeros_like(numbers), np.ones(pixels, np.float32))


def pool_pairs(pool: AvgPool | AdaptiveAvgPool, space: tuple[int, ...]) -> Pairs | None:
    """Each pixel and the windows it belongs to; None where the picture is too large to find out this way."""
    pixels = math.prod(space)
    if pixels > POOL_LIMIT:
        return None
    response = pool(torch.eye(pixels).view(pixels, 1, *space)).reshape(pixels, -1)
    source, target = torch.nonzero(response, as_tuple=True)
    shares = response[source, target].numpy()
    return Pairs(source.numpy(), target.numpy(), np.zeros(len(source), np.int64), shares)


def disjoint_windows(pool: Pairs, targets: int) -> tuple[Array, float] | None:
    """[window, member] and the share of a member, if windows are alike and no pixel belongs to two."""
    members = np.bincount(pool.target, minlength=targets)
    if len(np.unique(pool.source)) != pool.count or members.min() != members.max() or np.ptp(pool.share) != 0:
        return None
    order = np.lexsort((pool.source, pool.target))
    return pool.source[order].reshape(targets, -1).astype(np.uint32), float(pool.share[0])


def chain(pool: Pairs, then: Pairs) -> Pairs:
    """The pairs of `then` seen from the pixels before the pool."""
    order = np.argsort(then.source, kind="stable")
    start = np.searchsorted(then.source[order], pool.target, side="left")
    stop = np.searchsorted(then.source[order], pool.target, side="right")
    reach = stop - start
    left = np.repeat(np.arange(pool.count), reach)
    behind = np.arange(reach.sum()) - np.repeat(np.cumsum(reach) - reach, reach)
    right = order[start[left] + behind]
    return Pairs(
        pool.source[left],
        then.target[right],
        then.tap[right],
        (pool.share[left] * then.share[right]).astype(np.float32),
    )


def segments(pairs: Pairs, pixels: int, apart: bool = False) -> Segments:
    """Join neighbouring pairs; `pixels` is the number of sources. `apart`: neighbours do not lie side by side."""
    order = np.lexsort((pairs.tap, pairs.target, pairs.source))
    source, target, tap, share = (v[order] for v in (pairs.source, pairs.target, pairs.tap, pairs.share))
    goes_on = np.zeros(len(source), bool)
    if len(source) and not apart:
        goes_on[1:] = (
            (source[1:] == source[:-1])
            & (target[1:] == target[:-1] + 1)
            & (tap[1:] == tap[:-1] + 1)
            & (share[1:] == share[:-1])
        )
    heads = np.flatnonzero(~goes_on)
    lengths = np.diff(np.append(heads, len(source)))
    first = np.zeros(pixels + 1, np.int64)
    np.cumsum(np.bincount(source[heads], minlength=pixels), out=first[1:])
    return Segments(
        first, np.stack([target[heads], tap[heads], lengths], 1).astype(np.int64), share[heads].astype(np.float32)
    )
