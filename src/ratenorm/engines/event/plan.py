"""From a graph to stages.

A stage is a population, or the output, with everything that drives it: `base`, the part of its current that no spike
changes; the routes over which listed spikes reach it; and the summands that torch computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

from ratenorm.engines.event.layout import Layout
from ratenorm.engines.event.routes import Route, routes, summands
from ratenorm.engines.event.tables import Tables, make_tables
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import Fire


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

    def dense_cost(self, multiply_add: float, unpack: float) -> float:
        """What torch would take for a step, in the units of its arguments."""
        read = {route.source: route for _, route in self.listed}
        neurons = sum(len(r.weight) * (r.grid if r.windows is None else r.windows.size) for r in read.values())
        return neurons * unpack + multiply_add * sum(route.additions for _, route in self.listed)

    @cached_property
    def tables(self) -> Tables:
        return make_tables(self.layout, [route for _, route in self.listed])


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


def _stage(
    net: SpikingNet, node: Node, current: str, static: frozenset[str], populations: set[str], fires: bool
) -> Stage:
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
