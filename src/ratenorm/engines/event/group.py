"""A few images on their way through the network: one thread runs them through all layers, chunk by chunk."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ratenorm.core.coding import Coding
from ratenorm.engines.dense import analog_rates, chunks, encode
from ratenorm.engines.event.affine import ChunkValues, base, still_values
from ratenorm.engines.event.arrays import address_of, unset
from ratenorm.engines.event.crew import Crew
from ratenorm.engines.event.plan import Plan
from ratenorm.engines.event.room import Room
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
    parts: int  # threads that may work on one group


def joined(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """One behind the other; not copied where there is one."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


class Group:
    """The state of some images, and how it moves on."""

    def __init__(self, settings: Settings, x: Tensor, first_image: int) -> None:
        net = settings.net
        self.settings = settings
        self.step = 0
        self.total: Tensor | None = None
        self.logits: list[Tensor] = []
        targets = analog_rates(net, x) if settings.fit else {}
        firing = [stage for stage in settings.plan.stages if stage.fires]
        ends = list(itertools.accumulate(2 * len(x) * stage.layout.size for stage in firing))
        states = unset(ends[-1] if ends else 0, np.float32)  # in one allocation: many take time
        first, early = address_of(states), settings.first_spikes
        self.populations = [
            PopulationState(stage, len(x), states[begin:end], first + 4 * begin, targets.get(stage.name), early)
            for stage, begin, end in zip(firing, [0, *ends], ends, strict=False)
        ]
        self.by_name = {p.name: p for p in self.populations}
        self.relays = {n.name: RelayState(n, net.fan_out[n.name]) for n in net.nodes if isinstance(n.op, MaxPool)}
        self._take(x, list(range(first_image, first_image + len(x))), still_values(net, x, settings.plan.static))

    def _take(self, x: Tensor, numbers: list[int], still: dict[str, Tensor]) -> None:
        """Set up for these images: what does not change from step to step."""
        settings = self.settings
        self.x, self.numbers, self.still = x, numbers, still
        self.works = [
            StageWork(
                stage,
                len(x),
                settings.parts,
                None if stage.base is not None else base(settings.net, stage.current, self.still),
            )
            for stage in settings.plan.stages
        ]

    def keep(self, images: Sequence[int]) -> None:
        """Go on with some of the images only. What the others did stays counted; fit and first spikes cannot go on."""
        for population in self.populations:
            population.keep(images)
        for relay in self.relays.values():
            relay.keep(images)
        chosen = list(images)
        if self.total is not None:
            self.total = self.total[chosen]
        still = {name: value[chosen] for name, value in self.still.items()}
        self._take(self.x[chosen], [self.numbers[i] for i in images], still)

    def advance(self, steps: int, chunk: int, room: Room, crew: Crew) -> Tensor:
        """Run `steps` further steps, a chunk at a time; returns their logits [steps, images, classes]."""
        return joined([self._chunk(size, room, crew) for size in chunks(steps, chunk)])

    def _chunk(self, steps: int, room: Room, crew: Crew) -> Tensor:
        values = ChunkValues(self.settings.net, self.still, steps, self._source)
        out: Tensor | None = None
        for work in self.works:
            extra = work.prepare(room, crew, self.by_name, values, steps, self.settings.choose)
            if work.stage.fires:
                self.by_name[work.stage.name].fire(work, room, extra, steps, self.step, crew)
            else:
                out = work.currents(room, crew, extra, steps)
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
        coding = self.settings.coding
        coded = [encode(coding, self.x, self.step + s, self.numbers) for s in range(steps)]
        return torch.stack(coded, 1).flatten(0, 1)
