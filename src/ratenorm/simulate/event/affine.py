"""The affine parts of a graph, computed by torch: what no spike changes, and what is not worth listing.

Between populations a graph is affine: current = base + linear(spikes). `base` is the current without any spike;
the linear part is the same graph with every bias and shift left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import Affine, Conv, Fire, Input, Linear, MaxPool, Op


def still_values(net: SpikingNet, x: Tensor, static: frozenset[str]) -> dict[str, Tensor]:
    """The values that do not change, [B, …]."""
    values: dict[str, Tensor] = {}
    for node in net.nodes:
        if node.name in static:
            inputs = [values[i] for i in node.inputs]
            values[node.name] = x if isinstance(node.op, Input) else net.value(node, *inputs)
    return values


def base(net: SpikingNet, name: str, still: dict[str, Tensor]) -> Tensor:
    """The value of a node when nothing spikes: [B, …], or [1, …] where it does not depend on the input."""
    known: dict[str, Tensor] = {}

    def value(at: str) -> Tensor:
        if at in still:
            return still[at]
        if at not in known:
            node = net[at]
            if isinstance(node.op, Fire | MaxPool | Input):
                known[at] = torch.zeros(1, *net.shapes[at], dtype=torch.float32)
            else:
                inputs = [value(i) for i in node.inputs]
                batch = max(len(v) for v in inputs)
                known[at] = node.op(*(v.expand(batch, *v.shape[1:]) for v in inputs))
        return known[at]

    return value(name)


class ChunkValues:
    """Values of nodes over a chunk of steps, [B * S, …] with the steps of an image together, made on demand."""

    def __init__(
        self,
        net: SpikingNet,
        still: dict[str, Tensor],
        steps: int,
        source: Callable[[Node, ChunkValues, int], Tensor],
    ) -> None:
        self.net, self.still, self.steps, self.source = net, still, steps, source
        self._full: dict[str, Tensor] = {}
        self._linear: dict[str, Tensor] = {}

    def full(self, name: str) -> Tensor:
        """The value itself."""
        if name in self.still:
            return self.still[name].repeat_interleave(self.steps, 0)
        if name not in self._full:
            node = self.net[name]
            if isinstance(node.op, Fire | MaxPool | Input):
                self._full[name] = self.source(node, self, self.steps)
            else:
                self._full[name] = self.net.value(node, *(self.full(i) for i in node.inputs))
        return self._full[name]

    def linear(self, name: str) -> Tensor:
        """What the spikes contribute to a node of `Sums.on_grid`: nothing before it but spikes changes its value."""
        node = self.net[name]
        if isinstance(node.op, Fire | MaxPool):
            return self.full(name)
        if name not in self._linear:
            self._linear[name] = without_offset(node.op)(*(self.linear(i) for i in node.inputs))
        return self._linear[name]


def without_offset(op: Op) -> Op:
    """The linear part of an operation."""
    if isinstance(op, Conv | Linear):
        return replace(op, bias=None)
    return replace(op, shift=None) if isinstance(op, Affine) else op
