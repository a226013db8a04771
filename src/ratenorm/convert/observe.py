"""Exact statistics of the activations at every site, in one pass over the calibration images, whatever their batches.

A site's value is seen before its amplitude: u = clip(x, 0, ceiling), in the units of the pre-activation, so that a
statistic of u is a threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from ratenorm import distributed
from ratenorm.convert.calibration import Calibration
from ratenorm.core.losses import ceiling_for_omega
from ratenorm.errors import CalibrationError
from ratenorm.graph.net import Graph, Node, run
from ratenorm.graph.ops import Activation


class Statistic(Protocol):
    """Takes in values batch by batch; `value` is the answer at the end."""

    def update(self, u: Tensor) -> None: ...

    def join_(self) -> None:
        """Take in what the other processes have seen."""

    def value(self) -> Tensor: ...


class Maximum:
    """The largest value of a layer."""

    def __init__(self) -> None:
        self.largest = torch.zeros(1)

    def update(self, u: Tensor) -> None:
        self.largest = torch.maximum(self.largest, u.amax().reshape(1))

    def join_(self) -> None:
        self.largest = distributed.largest(self.largest)

    def value(self) -> Tensor:
        return self.largest


class ChannelMaximum:
    """The largest value of each channel, [C, 1, …]."""

    def __init__(self) -> None:
        self.largest: Tensor | None = None

    def update(self, u: Tensor) -> None:
        over = [0, *range(2, u.ndim)]
        found = u.amax(over).reshape(-1, *[1] * (u.ndim - 2))
        self.largest = found if self.largest is None else torch.maximum(self.largest, found)

    def join_(self) -> None:
        assert self.largest is not None
        self.largest = distributed.largest(self.largest)

    def value(self) -> Tensor:
        assert self.largest is not None
        return self.largest


class ExactPercentile:
    """The percentile of `total` values, interpolated linearly between the two nearest ranks as numpy does. Exact.

    Only the upper tail can matter, and how long it is follows from the number of values, which is known beforehand: so
    the largest k values are kept, and nothing else. The order in which values arrive cannot change them. Memory is that
    of the tail, 0.1 % of the values for the 99.9th percentile.
    """

    def __init__(self, percent: float, total: int) -> None:
        position = (total - 1) * (percent / 100.0)
        below = min(int(position), total - 1)
        self.fraction = position - below
        self.total = total
        self.keep = total - below  # the value at rank `below` and all above it
        self.tail = torch.empty(0)
        self.pending: list[Tensor] = []
        self.waiting = 0
        self.floor = -torch.inf  # values not above it cannot be among the largest k
        self.seen = 0

    def update(self, u: Tensor) -> None:
        flat = u.flatten()
        self.seen += flat.numel()
        candidates = flat[flat > self.floor] if self.floor > -torch.inf else flat
        self.pending.append(candidates)
        self.waiting += candidates.numel()
        if self.waiting + self.tail.numel() >= 2 * self.keep:
            self._shrink()

    def _shrink(self) -> None:
        values = torch.cat([self.tail, *self.pending])
        self.pending, self.waiting = [], 0
        if values.numel() > self.keep:
            values = values.topk(self.keep, sorted=False).values
        self.tail = values
        if values.numel() == self.keep:
            self.floor = float(values.min())

    def join_(self) -> None:
        self._shrink()
        self.pending = [distributed.gathered(self.tail)]  # the largest of all are among the largest of each
        self.tail = torch.empty(0)
        self.seen = int(distributed.total(torch.tensor(self.seen)))

    def value(self) -> Tensor:
        assert self.seen == self.total, f"percentile of {self.total} values was given {self.seen}"
        self._shrink()
        # Values equal to the floor were left out once the tail was full; equal values keep the ranks as they are.
        lowest = self.tail.topk(min(2, self.keep), largest=False).values.tolist()
        return torch.tensor([lowest[0] + (lowest[-1] - lowest[0]) * self.fraction])


class OmegaCeiling:
    """The ceiling theta below which the rates clip(u, 0, theta) / theta have that Omega, or the maximum.

    Values are counted by their leading digits, the exponent and nine bits of the mantissa of a float32. So all that is
    kept are whole numbers, which no order of images or processes can change, and theta is right to one part in 1000.
    """

    DROPPED = 14  # bits of a float32

    def __init__(self, omega: float) -> None:
        self.omega = omega
        self.counts = torch.zeros(1 << (31 - self.DROPPED), dtype=torch.int64)
        self.largest = Maximum()

    def update(self, u: Tensor) -> None:
        self.largest.update(u)
        places = u.flatten().float().view(torch.int32) >> self.DROPPED  # not negative, so the sign is 0
        self.counts += torch.bincount(places, minlength=len(self.counts))

    def join_(self) -> None:
        self.counts = distributed.total(self.counts)
        self.largest.join_()

    def value(self) -> Tensor:
        places = self.counts[1:].nonzero().flatten() + 1  # place 0 is silence
        lower, upper = ((p << self.DROPPED).int().view(torch.float32).double() for p in (places, places + 1))
        middle = (lower + upper) / 2
        theta = ceiling_for_omega(middle, self.omega, self.counts[places])
        largest = self.largest.value().float()
        if not len(middle) or theta == float(middle[-1]):  # no ceiling needed
            return largest
        return torch.minimum(torch.tensor([theta]), largest)


def sites(graph: Graph) -> tuple[Node, ...]:
    """The activations of an analog graph, in order."""
    return tuple(node for node in graph.nodes if isinstance(node.op, Activation))


@torch.no_grad()
def observe(graph: Graph, calibration: Calibration, make: Callable[[Node], Statistic]) -> dict[str, Tensor]:
    """One statistic for each site, over all calibration images."""
    found = {node.name: make(node) for node in sites(graph)}

    def look(node: Node, value: Tensor) -> Tensor:
        if isinstance(node.op, Activation):
            u = value
            if node.op.ceiling is not None:
                u = (
                    value * node.op.ceiling
                    if node.op.amplitude is None
                    else value * (node.op.ceiling / node.op.amplitude)
                )
            if not torch.isfinite(u.sum()):
                raise CalibrationError(
                    f"Calibrating: activations at {node.name!r} are NaN or infinite. Check the images "
                    "and the transforms: they should be those of training."
                )
            found[node.name].update(u)
        return value

    for batch in calibration:
        run(graph, batch, look)
    if calibration.shared:
        for statistic in found.values():
            statistic.join_()
    return {name: as_numbers_of(graph, statistic.value()) for name, statistic in found.items()}


def as_numbers_of(graph: Graph, value: Tensor) -> Tensor:
    """The value in the precision of the network, whatever torch's default is."""
    kinds = [kind for kind in graph.dtypes if kind.is_floating_point]
    return value.to(kinds[0]) if len(kinds) == 1 else value
