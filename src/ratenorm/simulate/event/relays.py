"""Max-pools over spikes: windows for the core, and a fallback in torch for those over anything else."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ratenorm.graph.net import Node
from ratenorm.graph.ops import MaxPool
from ratenorm.simulate.event import _core
from ratenorm.simulate.event.tables import Array, flat


def pool_windows(pool: MaxPool, before: Sequence[int], after: Sequence[int]) -> Array:
    """[window, member] pixels of the space `before`; NOWHERE in the padding."""
    reached: list[list[list[int]]] = []  # by dimension and window; -1 in the padding
    settings = zip(before, after, pool.kernel, pool.stride, pool.padding, pool.dilation, strict=True)
    for length, windows, kernel, stride, padding, dilation in settings:
        places = [[w * stride - padding + k * dilation for k in range(kernel)] for w in range(windows)]
        reached.append([[at if 0 <= at < length else -1 for at in window] for window in places])

    def pixel(at: tuple[int, ...]) -> int:
        return int(np.ravel_multi_index(at, tuple(before))) if min(at) >= 0 else _core.NOWHERE

    windows_of_all = itertools.product(*reached)
    return flat([[pixel(at) for at in itertools.product(*window)] for window in windows_of_all], np.uint32)


class RelayState:
    """A max-pool in torch: what has accumulated before it, and its maximum a step ago."""

    def __init__(self, node: Node, fan_out: Tensor) -> None:
        self.node, self.fan_out = node, fan_out
        self.accumulated: Tensor | None = None
        self.largest: Tensor | None = None
        self._synaptic_ops: list[Tensor] = []

    def run(self, value: Tensor, images: int, steps: int) -> Tensor:
        """The spikes passed on over a chunk, [images * steps, …]."""
        pool, out = self.node.op, []
        assert isinstance(pool, MaxPool)
        by_step = value.reshape(images, steps, *value.shape[1:])
        for s in range(steps):
            now = by_step[:, s]
            self.accumulated = now.clone() if self.accumulated is None else self.accumulated + now
            largest = pool(self.accumulated)
            passed = largest if self.largest is None else largest - self.largest
            self.largest = largest
            self._synaptic_ops.append(((passed != 0).sum(0).double() * self.fan_out).sum())
            out.append(passed)
        return torch.stack(out, 1).flatten(0, 1)

    def synaptic_ops(self) -> Tensor:
        return torch.stack(self._synaptic_ops)

    def keep(self, images: Sequence[int]) -> None:
        """Continue with some of the images only."""
        if self.accumulated is not None and self.largest is not None:
            self.accumulated, self.largest = self.accumulated[list(images)], self.largest[list(images)]
