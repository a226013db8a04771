"""From a graph to stages.

A stage is a population, a max-pool over spikes, or the output, with everything that drives it: `base`, the part of its
current that no spike changes; the routes over which listed spikes reach it; and the summands that torch computes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ratenorm.errors import UsageError
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import Fire, MaxPool
from ratenorm.simulate.event import _core, costs
from ratenorm.simulate.event.affine import base
from ratenorm.simulate.event.currents import Currents, together
from ratenorm.simulate.event.layout import Layout
from ratenorm.simulate.event.lookup import lookup_of
from ratenorm.simulate.event.relays import pool_windows
from ratenorm.simulate.event.routes import Route, routes, summands
from ratenorm.simulate.event.tables import Array, StageKind, StageTable, flat

INSTRUCTION_SET = "RATENORM_NATIVE_ISA"  # the environment variable that chooses one
_CHUNKS = 8  # that a plan keeps for later simulations


@dataclass(frozen=True, eq=False)
class Stage:
    """A population, a relay or the output, and what drives it."""

    node: Node
    layout: Layout
    listed: tuple[Route, ...] = ()
    skip: Route | None = None  # a skip connection, added from the spikes themselves
    computed: tuple[str, ...] = ()  # summands left to torch
    summands: tuple[str, ...] = ()  # left to torch where it is to compute what could be listed, as often as they occur
    whole: bool = False  # its current lies on no grid: torch computes all of it, in the order in which the graph says
    base: Tensor | None = None  # [1, …]; None where it depends on the images

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def fires(self) -> bool:
        return isinstance(self.node.op, Fire)

    @property
    def relays(self) -> bool:
        return isinstance(self.node.op, MaxPool)

    @property
    def spikes(self) -> bool:
        return self.fires or self.relays

    @property
    def current(self) -> str:
        """The node whose value is its current."""
        return self.node.inputs[0] if self.fires else self.node.name

    def in_lanes(self, value: Tensor) -> Array:
        """A current [N, …] as flat [N, pixel, lane]."""
        return flat(self.layout.to_lanes(value.float()).numpy(), np.float32)


@dataclass(eq=False)
class Plan:
    """The stages of a network that the core runs, in order, and the program made of them.

    An output that is a population itself has no stage of its own; nor has one that no listed spike reaches, which is
    `outside`.
    """

    stages: tuple[Stage, ...]
    outside: Stage | None
    static: frozenset[str]  # nodes whose value does not change from step to step
    program: _core.Program
    _chunks: deque[tuple[tuple[int, int, int], _core.Chunk]] = field(default_factory=lambda: deque(maxlen=_CHUNKS))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Of the stages, by name."""
        return {stage.name: k for k, stage in enumerate(self.stages)}

    def take_chunk(self, images: int, steps: int, threads: int) -> _core.Chunk:
        """Memory for a chunk: of an earlier simulation, or new."""
        kept = []
        found = None
        while found is None and self._chunks:
            size, chunk = self._chunks.pop()
            if size == (images, steps, threads):
                found = chunk
            else:
                kept.append((size, chunk))
        self._chunks.extend(kept)
        return _core.Chunk(self.program, images, steps, threads) if found is None else found

    def chunks(self) -> list[_core.Chunk]:
        """Those that are kept, the last one used at the end."""
        return [chunk for _, chunk in self._chunks]

    def give_chunk(self, images: int, steps: int, threads: int, chunk: _core.Chunk) -> None:
        """Keep it for the next simulation; not where something went wrong."""
        self._chunks.append(((images, steps, threads), chunk))


# A plan holds no reference to its network, so that both go together.
_PLANS: WeakKeyDictionary[SpikingNet, dict[tuple[bool, str], Plan]] = WeakKeyDictionary()


def plan(net: SpikingNet, still: bool) -> Plan:
    """The plan of a network, made once. `still`: the input is constant, so what reads only it does not change."""
    wanted = os.environ.get(INSTRUCTION_SET, "")
    known = _PLANS.setdefault(net, {})
    if (still, wanted) not in known:
        if wanted and wanted not in _core.instruction_sets():
            raise UsageError(
                f"Simulating on the event engine: {INSTRUCTION_SET} is {wanted!r}; this machine has "
                f"{', '.join(_core.instruction_sets())}. Unset it to take the first."
            )
        with torch.no_grad():
            known[still, wanted] = _make(net, net.static if still else frozenset(), wanted)
    return known[still, wanted]


def stage_tables(net: SpikingNet, still: bool) -> list[StageTable]:
    """What the core is told of a network, stage by stage."""
    with torch.no_grad():
        stages, _, spiking = _stages(net, net.static if still else frozenset())
        return [_table(net, stage, stages, spiking) for stage in stages]


def _make(net: SpikingNet, static: frozenset[str], instruction_set: str) -> Plan:
    stages, outside, spiking = _stages(net, static)
    tables = [_table(net, stage, stages, spiking) for stage in stages]
    return Plan(tuple(stages), outside, static, _core.Program(tables, instruction_set))


def _stages(net: SpikingNet, static: frozenset[str]) -> tuple[list[Stage], Stage | None, dict[str, int]]:
    """The stages, an output outside of them, and the numbers of those that spike."""
    spiking: dict[str, int] = {}
    stages: list[Stage] = []
    for node in net.nodes:
        if isinstance(node.op, Fire):
            stage = _stage(net, node, static, spiking)
        elif isinstance(node.op, MaxPool) and node.inputs[0] in spiking:
            stage = Stage(node, Layout.of(net.shapes[node.name]))
        else:
            continue
        if stage.fires or stage.layout.lanes == stages[spiking[node.inputs[0]]].layout.lanes:
            spiking[node.name] = len(stages)
            stages.append(stage)
    outside = None
    if not isinstance(net[net.output].op, Fire) and net.output not in spiking:
        last = _stage(net, net[net.output], static, spiking)
        if last.listed:
            stages.append(last)
        else:
            outside = last
    return stages, outside, spiking


def _stage(net: SpikingNet, node: Node, static: frozenset[str], spiking: Mapping[str, int]) -> Stage:
    fires = isinstance(node.op, Fire)
    current = node.inputs[0] if fires else node.name
    layout = Layout.of(net.shapes[current])
    skip: Route | None = None
    listed: list[Route] = []
    computed: list[str] = []
    either: list[str] = []
    whole = current not in static and current not in net.sums.on_grid
    for name in [current] if whole else summands(net, current):
        if name in static:
            continue
        found = routes(net, name, spiking.__contains__) if layout.listable and layout.shape and not whole else None
        if found is None:
            computed.append(name)
        elif fires and skip is None and len(found) == 1 and found[0].skip:
            skip = found[0]
        else:
            listed += found
            either.append(name)
    if listed and (layout.pixels == 1 or all(route.diagonal for route in listed)):
        layout = layout.widened()
    constant: Tensor | None = torch.zeros(1, *net.shapes[current], dtype=torch.float32)
    if not whole:
        constant = None if _reads(net, current, static) else base(net, current, {})
    return Stage(node, layout, tuple(listed), skip, tuple(computed), (*computed, *either), whole, constant)


def _reads(net: SpikingNet, name: str, static: frozenset[str]) -> bool:
    """Whether a current depends on a value that is static: on the images, that is."""
    if name in static:
        return True
    node = net[name]
    return name not in net.fan_out and any(_reads(net, i, static) for i in node.inputs)


def _table(net: SpikingNet, stage: Stage, stages: list[Stage], spiking: Mapping[str, int]) -> StageTable:
    """A stage for the core."""
    layout = stage.layout
    if stage.relays:
        source = stages[spiking[stage.node.inputs[0]]]
        assert isinstance(stage.node.op, MaxPool)
        windows = pool_windows(stage.node.op, source.layout.shape[1:], layout.shape[1:])
        return StageTable(
            kind=StageKind.RELAY,
            **layout.sizes,
            source=spiking[source.name],
            source_pixels=source.layout.pixels,
            windows=windows,
            members=len(windows) // layout.pixels,
            **_fan_out(net, stage),
        )
    fields: dict[str, Any] = {**layout.sizes, **_base(stage)}
    if stage.fires:
        fields |= {**_neuron(stage), **_fan_out(net, stage)}
    if stage.skip is not None:
        scale = np.zeros(layout.lanes, np.float32)
        scale[: layout.channels] = stage.skip.weight[:, 0].numpy()
        fields |= {"skip": spiking[stage.skip.source], "skip_scale": scale}
    looked_up = lookup_of(layout, stage.listed, spiking) if stage.fires and not stage.computed else None
    if looked_up is not None:
        return StageTable(kind=StageKind.LOOKED_UP, **fields, **looked_up)
    if not (stage.listed or stage.computed or stage.skip):
        return StageTable(kind=StageKind.STILL, **fields)
    currents = Currents.of(layout, stage.listed)
    tables = [currents.table(route, spiking) for route in stage.listed]
    by_row, once = costs.of_convolution(stage.listed, layout.pixels)
    alone = stage.fires and stage.skip is None and not stage.computed
    return StageTable(
        kind=StageKind.DRIVEN if stage.fires else StageKind.OUTPUT,
        **fields,
        places=flat(currents.places, np.uint32),
        total=currents.total,
        together=together(currents, tables) if alone else 1,
        computed=int(bool(stage.computed)),
        dense_row=round(1000 * by_row),
        dense_once=round(1000 * once),
        routes=tables,
    )


def _base(stage: Stage) -> dict[str, Any]:
    """A constant current that is the same for all images, no larger than it must be."""
    if stage.base is None:
        return {}
    layout = stage.layout
    shared = layout.by_channel(stage.base[0])
    if shared is not None:
        return {"base": shared, "base_block": layout.width}
    return {"base": stage.in_lanes(stage.base), "base_block": layout.width, "base_pixel": layout.lanes}


def _neuron(stage: Stage) -> dict[str, Any]:
    """Thresholds, start potentials and step biases."""
    fire, layout = stage.node.op, stage.layout
    assert isinstance(fire, Fire)
    fields: dict[str, Any] = {"threshold_block": layout.width}
    shared = layout.by_channel(fire.threshold, np.inf)
    if shared is None:
        full = layout.to_blocks(fire.threshold.expand(1, *layout.shape), np.inf)
        fields = {"threshold_block": layout.pixels * layout.width, "threshold_pixel": layout.width}
    fields["threshold"] = full if shared is None else shared
    if bool(fire.start.any()):
        fields["start"] = layout.to_blocks(fire.start.expand(1, *layout.shape))
    if fire.step_bias is None:
        return fields
    rows = [layout.by_channel(row) for row in fire.step_bias]
    fields |= {"bias_rows": len(rows), "bias_block": layout.width, "bias_row": layout.lanes}
    if all(row is not None for row in rows):
        return {**fields, "step_bias": flat(np.stack([row for row in rows if row is not None]), np.float32)}
    full = stage.in_lanes(torch.stack([row.expand(layout.shape) for row in fire.step_bias]))
    return {**fields, "step_bias": full, "bias_row": layout.pixels * layout.lanes, "bias_pixel": layout.lanes}


def _fan_out(net: SpikingNet, stage: Stage) -> dict[str, Any]:
    return dict(stage.layout.fan_out(net.fan_out[stage.name]))
