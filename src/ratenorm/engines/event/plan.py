"""From a graph to stages.

A stage is a population, or the output, with everything that drives it: `base`, the part of its current that no spike
changes; the routes over which listed spikes reach it; and the summands that torch computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ratenorm.engines.event.arrays import Array, aligned
from ratenorm.engines.event.layout import Layout
from ratenorm.engines.event.pairs import segments
from ratenorm.engines.event.routes import Route, routes, summands
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import Fire

# Kinds of sections: how the spikes of a list find the currents they add to.
ROWS = 0  # along the segments of their pixel, to all channels
OWN = 1  # along the segments of their pixel, to their own channel only
WINDOW = 2  # to three runs of three pixels, all channels: a 3x3 convolution
POINT = 3  # to one pixel, all channels: a 1x1 convolution, or a linear layer


@dataclass(frozen=True, eq=False)
class Tables:
    """The routes of a stage as the kernels read them."""

    sections: Array  # [K, 8] kind, first pixel, first weight, taps, stride, pixels, many, first mark
    factors: Array  # [K]
    first: Array  # by pixel: its first segment (ROWS, OWN), or where its currents begin (WINDOW, POINT)
    rows: Array  # [segments, 3]
    shares: Array  # [segments]
    weights: Array
    block_size: int
    diagonal: Array
    places: Array  # where the current of each pixel lies
    total: int  # size of the currents of a block
    marks: int  # of a row


@dataclass(frozen=True, eq=False)
class Stage:
    """A population, or the output, and what drives it."""

    node: Node
    layout: Layout
    listed: tuple[tuple[str, Route], ...]  # (summand, route)
    computed: tuple[str, ...]  # summands left to torch
    fires: bool

    @property
    def name(self) -> str:
        return self.node.name

    @cached_property
    def digits(self) -> tuple[int, ...]:
        """For each route the lists it needs: one, or as many as the largest count of a window has binary digits."""
        return tuple(1 if r.windows is None else int(r.windows.shape[1]).bit_length() for _, r in self.listed)

    def dense_cost(self, multiply_add: float, unpack: float) -> float:
        """What torch would take for a step, in the units of its arguments."""
        read = {route.source: route for _, route in self.listed}
        neurons = sum(len(r.weight) * (r.grid if r.windows is None else r.windows.numel()) for r in read.values())
        return neurons * unpack + multiply_add * sum(route.additions for _, route in self.listed)

    @cached_property
    def tables(self) -> Tables:
        return _tables(self)

    @cached_property
    def windows(self) -> tuple[Array | None, ...]:
        return tuple(None if r.windows is None else np.ascontiguousarray(r.windows.numpy().astype(np.uint32))
                     for _, r in self.listed)


@dataclass(frozen=True, eq=False)
class Plan:
    """The stages of a network, in order; the last one is the output unless that is a population itself."""

    stages: tuple[Stage, ...]
    still: bool  # the input is constant


_PLANS: WeakKeyDictionary[SpikingNet, dict[bool, Plan]] = WeakKeyDictionary()


def plan(net: SpikingNet, still: bool) -> Plan:
    """The plan of a network, made once. `still`: the input is constant, so what reads only it does not change."""
    known = _PLANS.setdefault(net, {})
    if still not in known:
        known[still] = _make(net, net.static if still else frozenset(), still)
    return known[still]


def _make(net: SpikingNet, static: frozenset[str], still: bool) -> Plan:
    populations = {node.name for node in net.populations}
    stages: list[Stage] = []
    for node in net.nodes:
        if isinstance(node.op, Fire):
            stages.append(_stage(net, node, node.inputs[0], static, populations, True))
    if net.output not in populations:
        stages.append(_stage(net, net[net.output], net.output, static, populations, False))
    return Plan(tuple(stages), still)


def _stage(net: SpikingNet, node: Node, current: str, static: frozenset[str], populations: set[str],
           fires: bool) -> Stage:
    listed: list[tuple[str, Route]] = []
    computed: list[str] = []
    layout = Layout.of(net.shapes[current])
    for name in summands(net, current):
        if name in static:
            continue
        found = routes(net, name, populations.__contains__) if layout.listable else None
        if found is None:
            computed.append(name)
        else:
            listed += [(name, route) for route in found]
    return Stage(node, layout, tuple(listed), tuple(computed), fires)


def _places(stage: Stage) -> tuple[Array, int, int]:
    """Where the currents of the pixels lie, how long a row of pixels is, and the space all take.

    Behind a 3x3 convolution the picture has a margin, so that windows at the border are like all others; a last pixel
    takes what reaches none.
    """
    layout, width = stage.layout, stage.layout.width
    window = next((r.window for _, r in stage.listed if r.window is not None), None)
    if window is None or width != 32:
        return np.arange(layout.pixels) * width, 0, (layout.pixels + 1) * width
    line = window.width + 2
    height, breadth = layout.shape[1:]
    y, x = np.divmod(np.arange(height * breadth), breadth)
    places = ((y + 2 - window.top) * line + x + 2 - window.left) * width
    return places, line, ((window.height + 2) * line + 1) * width


class _Builder:
    """Collects the tables of a stage, route by route."""

    def __init__(self, stage: Stage) -> None:
        self.layout = stage.layout
        self.places, self.line, self.total = _places(stage)
        self.sections: list[tuple[int, ...]] = []
        self.factors: list[float] = []
        self.first: list[Array] = []
        self.rows: list[Array] = [np.zeros((0, 3), np.int64)]
        self.shares: list[Array] = [np.zeros(0, np.float32)]
        self.weights: list[Tensor] = [torch.zeros(stage.layout.blocks, 0)]
        self.diagonal: list[Array] = [np.zeros(0, np.float32)]
        self.pixels = self.segments = self.weight0 = self.diagonal0 = self.marks = 0

    def add(self, route: Route, digits: int) -> None:
        kind, first = self._kind(route)
        start = self.diagonal0 if kind == OWN else self.weight0
        stride = self.line * self.layout.width if kind == WINDOW else 0
        for digit in range(digits):
            self.sections.append((kind, self.pixels, start, route.weight.shape[1], stride, route.grid, 0, self.marks))
            self.factors.append(route.share * 2.0**digit)
            self.marks += route.grid
        self.first.append(first)
        self.pixels += len(first)
        self._add_weights(route)

    def _kind(self, route: Route) -> tuple[int, Array]:
        width, pairs = self.layout.width, route.pairs
        if route.window is not None and self.line == route.window.width + 2:
            y, x = np.divmod(np.arange(route.grid), route.window.width)
            return WINDOW, (y * self.line + x) * width
        simple = route.weight.shape[1] == 1 and len(np.unique(pairs.source)) == pairs.count
        if simple and not route.diagonal and width == 32 and bool((pairs.share == 1).all()):
            start = np.full(route.grid, self.total - width)
            start[pairs.source] = self.places[pairs.target]
            return POINT, start
        cut = segments(pairs, route.grid, self.line > 0)
        self.rows.append(np.stack([self.places[cut.rows[:, 0]], cut.rows[:, 1] * width, cut.rows[:, 2] * width], 1))
        self.shares.append(cut.shares)
        first = cut.first + self.segments
        self.segments += len(cut.rows)
        return (OWN if route.diagonal else ROWS), first

    def _add_weights(self, route: Route) -> None:
        if route.diagonal:
            self.diagonal.append(route.weight.float().flatten().numpy())
            self.diagonal0 += route.weight.numel()
            return
        layout = self.layout
        inputs, taps, _ = route.weight.shape
        padded = F.pad(route.weight.float(), (0, layout.lanes - layout.channels))
        blocked = padded.view(inputs, taps, layout.blocks, layout.width).permute(2, 0, 1, 3)
        self.weights.append(blocked.reshape(layout.blocks, -1))
        self.weight0 += inputs * taps * layout.width

    def done(self) -> Tables:
        first = np.concatenate([*self.first, np.zeros(1, np.int64)]).astype(np.uint32)
        return Tables(
            np.array(self.sections, np.int64).reshape(-1, 8), np.array(self.factors, np.float32), first,
            np.concatenate(self.rows).astype(np.uint32), np.concatenate(self.shares).astype(np.float32),
            aligned(torch.cat(self.weights, 1).contiguous().numpy()), self.weight0, np.concatenate(self.diagonal),
            self.places.astype(np.uint32), self.total, self.marks)


def _tables(stage: Stage) -> Tables:
    builder = _Builder(stage)
    for (_, route), digits in zip(stage.listed, stage.digits, strict=True):
        builder.add(route, digits)
    return builder.done()
