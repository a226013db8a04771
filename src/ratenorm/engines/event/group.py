"""A few images on their way through the network: one thread runs them through all layers, chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ratenorm.core.coding import Coding
from ratenorm.engines.dense import analog_rates, chunks
from ratenorm.engines.event.affine import ChunkValues, base, still_values
from ratenorm.engines.event.lists import Lists
from ratenorm.engines.event.plan import Plan, Stage
from ratenorm.engines.event.state import PopulationState, RelayState
from ratenorm.engines.event.work import StageWork
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import Fire, Input, MaxPool


@dataclass(frozen=True)
class Settings:
    """What all groups of a simulation share."""

    net: SpikingNet
    plan: Plan
    coding: Coding
    fit: bool
    first_spikes: bool
    choose: bool  # between events and convolution, layer by layer; else events wherever they can be listed


class Group:
    """The state of some images, and how it moves on."""

    def __init__(self, settings: Settings, x: Tensor, first_image: int) -> None:
        net = settings.net
        self.settings, self.x, self.first_image = settings, x, first_image
        self.step = 0
        self.total: Tensor | None = None
        self.logits: list[Tensor] = []
        self.lists = Lists()
        static = net.static if settings.plan.still else frozenset()
        self.still = still_values(net, x, static)
        targets = analog_rates(net, x) if settings.fit else {}
        self.works: list[tuple[Stage, StageWork]] = []
        self.populations: list[PopulationState] = []
        for stage in settings.plan.stages:
            current = stage.node.inputs[0] if stage.fires else stage.name
            self.works.append((stage, StageWork(stage, base(net, current, self.still), len(x))))
            if stage.fires:
                self.populations.append(
                    PopulationState(
                        stage, len(x), net.fan_out[stage.name], targets.get(stage.name), settings.first_spikes
                    )
                )
        self.by_name = {p.name: p for p in self.populations}
        self.relays = {n.name: RelayState(n, net.fan_out[n.name]) for n in net.nodes if isinstance(n.op, MaxPool)}

    def advance(self, steps: int, chunk: int) -> Tensor:
        """Run `steps` further steps, a chunk at a time; returns their logits [steps, images, classes]."""
        return torch.cat([self._chunk(size) for size in chunks(steps, chunk)])

    def _chunk(self, steps: int) -> Tensor:
        values = ChunkValues(self.settings.net, self.still, steps, lambda node: self._source(node, values, steps))
        out: Tensor | None = None
        for stage, work in self.works:
            extra = work.prepare(self.lists, self.by_name, values, steps, self.settings.choose)
            if stage.fires:
                self.by_name[stage.name].fire(work, self.lists, extra, steps, self.step)
            else:
                out = work.currents(self.lists, extra, steps)
        for name in self.relays:
            values.full(name)  # a relay that nothing reads still counts
        if out is None:
            out = values.full(self.settings.net.output)
        return self._answer(out.reshape(len(self.x), steps, -1).transpose(0, 1), steps)

    def _answer(self, out: Tensor, steps: int) -> Tensor:
        running = out.cumsum(0) if self.total is None else out.cumsum(0) + self.total
        self.total = running[-1]
        counted = torch.arange(self.step + 1, self.step + steps + 1, dtype=out.dtype)
        logits = running / counted.view(-1, 1, 1)
        self.logits.append(logits)
        self.step += steps
        return logits

    def _source(self, node: Node, values: ChunkValues, steps: int) -> Tensor:
        """A node that torch reads but does not compute: spikes, a relay, or the coded input."""
        if isinstance(node.op, Fire):
            return self.by_name[node.name].as_floats(steps)
        if isinstance(node.op, MaxPool):
            return self.relays[node.name].run(values.full(node.inputs[0]), len(self.x), steps)
        assert isinstance(node.op, Input)
        coded = [self.settings.coding.encode(self.x, self.step + s, self.first_image) for s in range(steps)]
        return torch.stack(coded, 1).flatten(0, 1)
