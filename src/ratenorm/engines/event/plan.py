"""From a graph to stages.

A stage is a population, or the output, with everything that drives it: `base`, the part of its current that no spike
changes; the routes over which listed spikes reach it; and the summands that torch computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from queue import SimpleQueue
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ratenorm.engines.event import costs
from ratenorm.engines.event.affine import base
from ratenorm.engines.event.arrays import Array, aligned
from ratenorm.engines.event.fire import Base
from ratenorm.engines.event.layout import Layout
from ratenorm.engines.event.lookup import Lookup, lookup_of
from ratenorm.engines.event.routes import Route, routes, summands
from ratenorm.engines.event.tables import Tables, make_tables
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import Fire

if TYPE_CHECKING:
    from ratenorm.engines.event.script import Room


@dataclass(frozen=True)
class Thresholds:
    """Lane by lane, and how far it is from one block's to the next and from one pixel's to the next."""

    values: Array
    block: int
    pixel: int


@dataclass(frozen=True, eq=False)
class Stage:
    """A population, or the output, and what drives it."""

    node: Node
    layout: Layout
    listed: tuple[Route, ...]
    skip: Route | None  # a skip connection, added from the spikes themselves
    computed: tuple[str, ...]  # summands left to torch
    summands: tuple[str, ...]  # left to torch where it is to compute what could be listed; each as often as it occurs
    whole: bool  # its current lies on no grid: torch computes all of it, in the order in which the graph says
    base: Tensor | None  # [1, …]; None where it depends on the images
    fan_out: Array  # empty for the output
    fan_out_by_word: bool  # or by neuron

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def fires(self) -> bool:
        return isinstance(self.node.op, Fire)

    @cached_property
    def driven(self) -> bool:
        """Whether any spike reaches it."""
        return bool(self.listed or self.computed or self.skip)

    @property
    def current(self) -> str:
        """The node whose value is its current."""
        return self.node.inputs[0] if self.fires else self.node.name

    @cached_property
    def spike_costs(self) -> list[float]:
        """Of a listed spike, route by route."""
        blocks, short = self.layout.blocks, self.tables.in_short
        return [costs.of_a_spike(route, blocks, s) for route, s in zip(self.listed, short, strict=True)]

    @cached_property
    def dense_costs(self) -> tuple[float, float]:
        """What torch would take instead, for each row and once in a chunk."""
        return costs.of_convolution(self.listed, self.layout.pixels)

    @cached_property
    def tables(self) -> Tables:
        return make_tables(self.layout, list(self.listed))

    @cached_property
    def lookup(self) -> Lookup | None:
        """Where its currents are looked up instead of added spike by spike."""
        return None if self.computed or not self.fires else lookup_of(self.layout, self.listed)

    @cached_property
    def together(self) -> int:
        """How many steps can be added before the neurons fire, where listed spikes are all that drives it."""
        return self.tables.together if self.skip is None and not self.computed else 1

    @cached_property
    def base_everywhere(self) -> Base:
        """A constant current that is the same for all images, no larger than it must be."""
        assert self.base is not None
        assert self.driven  # everything comes from the images: what reads none of them reads spikes
        layout = self.layout
        flat = self.base.reshape(layout.channels, layout.pixels)
        if not bool((flat == flat[:, :1]).all()):
            return Base(self.in_lanes(self.base), 0, layout.width, layout.lanes)
        lanes = np.zeros(layout.lanes, np.float32)
        lanes[: layout.channels] = flat[:, 0].numpy()
        return Base(aligned(lanes), 0, layout.width, 0)

    def in_lanes(self, value: Tensor) -> Array:
        """A current [N, …] as flat [N, pixel, lane]; not copied where its channels lie last."""
        return aligned(self.layout.to_lanes(value.float()).numpy())

    @cached_property
    def skip_scale(self) -> Array:
        """Lane by lane what a spike of the skip connection brings; empty where there is none."""
        lanes = np.zeros(0 if self.skip is None else self.layout.lanes, np.float32)
        if self.skip is not None:
            lanes[: self.layout.channels] = self.skip.weight[:, 0].numpy()
        return aligned(lanes)

    @cached_property
    def start(self) -> Array | None:
        """The potentials of one image before the first step; None where all are zero."""
        assert isinstance(self.node.op, Fire)
        if not bool(self.node.op.start.any()):
            return None
        return self.layout.to_blocks(self.node.op.start.expand(1, *self.layout.shape))

    @cached_property
    def thresholds(self) -> Thresholds:
        """Those that all pixels share are repeated over the 64 lanes that a kernel may read at once."""
        assert isinstance(self.node.op, Fire)
        layout = self.layout
        full = self.node.op.threshold.expand(1, *layout.shape)
        flat = full.reshape(layout.channels, layout.pixels)
        if not bool((flat == flat[:, :1]).all()):
            return Thresholds(layout.to_blocks(full, float("inf")), layout.pixels * layout.width, layout.width)
        lanes = np.full(layout.lanes, np.inf, np.float32)
        lanes[: layout.channels] = flat[:, 0].numpy()
        return Thresholds(aligned(np.tile(lanes, 1 + -(-64 // layout.lanes))), layout.width, 0)


@dataclass(frozen=True, eq=False)
class Plan:
    """The stages of a network, in order; the last one is the output unless that is a population itself."""

    stages: tuple[Stage, ...]
    static: frozenset[str]  # nodes whose value does not change from step to step
    rooms: SimpleQueue[Room]  # of earlier simulations, to be used again


# A plan holds no reference to its network, so that both go together.
_PLANS: WeakKeyDictionary[SpikingNet, dict[bool, Plan]] = WeakKeyDictionary()


def plan(net: SpikingNet, still: bool) -> Plan:
    """The plan of a network, made once. `still`: the input is constant, so what reads only it does not change."""
    known = _PLANS.setdefault(net, {})
    if still not in known:
        with torch.no_grad():
            known[still] = _make(net, net.static if still else frozenset())
    return known[still]


def _make(net: SpikingNet, static: frozenset[str]) -> Plan:
    stages = [_stage(net, node, static) for node in net.populations]
    if not isinstance(net[net.output].op, Fire):
        stages.append(_stage(net, net[net.output], static))
    return Plan(tuple(stages), static, SimpleQueue())


def _stage(net: SpikingNet, node: Node, static: frozenset[str]) -> Stage:
    fires = isinstance(node.op, Fire)
    current = node.inputs[0] if fires else node.name
    layout = Layout.of(net.shapes[current])
    populations = {n.name for n in net.populations}
    skip: Route | None = None
    listed: list[Route] = []
    computed: list[str] = []
    either: list[str] = []
    whole = current not in static and current not in net.sums.on_grid
    for name in [current] if whole else summands(net, current):
        if name in static:
            continue
        found = routes(net, name, populations.__contains__) if layout.listable and layout.shape and not whole else None
        if found is None:
            computed.append(name)
        elif fires and skip is None and len(found) == 1 and found[0].skip:
            skip = found[0]
        else:
            listed += found
            either.append(name)
    if listed and (layout.pixels == 1 or all(route.diagonal for route in listed)):
        layout = layout.widened()
    fan_out, by = layout.fan_out(net.fan_out[node.name]) if fires else (np.zeros(0, np.int64), True)
    constant: Tensor | None = torch.zeros(1, *net.shapes[current], dtype=torch.float32)
    if not whole:
        constant = None if _reads(net, current, static) else base(net, current, {})
    by_torch = (*computed, *either)
    return Stage(node, layout, tuple(listed), skip, tuple(computed), by_torch, whole, constant, fan_out, by)


def _reads(net: SpikingNet, name: str, static: frozenset[str]) -> bool:
    """Whether a current depends on a value that is static: on the images, that is."""
    if name in static:
        return True
    node = net[name]
    return name not in net.fan_out and any(_reads(net, i, static) for i in node.inputs)
