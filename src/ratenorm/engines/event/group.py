"""A few images on their way through the network: one thread runs them through all layers, chunk by chunk."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ratenorm.core.coding import Coding
from ratenorm.engines.event import jobs
from ratenorm.engines.event.affine import ChunkValues, base, still_values
from ratenorm.engines.event.arrays import NOTHING, Array, address_of, unset
from ratenorm.engines.event.crew import Crew
from ratenorm.engines.event.plan import Plan, Stage
from ratenorm.engines.event.script import Chunk, Room, Script
from ratenorm.engines.event.state import PopulationState, RelayState
from ratenorm.engines.event.threads import torch_threads
from ratenorm.errors import SimulationError
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import Fire, Input, MaxPool
from ratenorm.simulate.dense import analog_rates, chunks, encode, mean_outputs


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
        self.settings = settings
        self.step = 0
        self._broken = False  # stopped in the middle of a chunk
        self.total: Tensor | None = None
        self.logits: list[Tensor] = []
        self.noted: list[Array] = []  # [population, (spikes, synaptic operations), step] of every chunk
        self.rows = 0  # run so far
        self.dense_rows = [0] * len(settings.plan.stages)  # how many of them by convolution
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
        self.x, self.numbers, self.still = x, numbers, still
        self._bases: dict[int, Array] = {}  # by population, where its constant current depends on the images
        for k, stage in enumerate(self.settings.plan.stages):
            if stage.base is None and stage.fires:
                value = base(self.settings.net, stage.current, still)
                self._bases[k] = stage.in_lanes(value.expand(len(x), *stage.layout.shape))

    def keep(self, images: Sequence[int]) -> None:
        """Go on with some of the images only."""
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
        if self._broken:
            raise SimulationError(
                f"Simulating: these images were interrupted behind step {self.step}, and their neurons are not all at "
                "the same step. Start a new simulation."
            )
        self._broken = True
        logits = torch.cat([self._chunk(size, room, crew) for size in chunks(steps, chunk)])
        self._broken = False
        return logits

    def _chunk(self, steps: int, room: Room, crew: Crew) -> Tensor:
        settings, images = self.settings, len(self.x)
        stages = settings.plan.stages
        script = room.script(stages, Chunk(images, steps, crew.size, settings.choose))
        script.begin([population.begin() for population in self.populations], self._bases)
        values = ChunkValues(settings.net, self.still, steps, partial(self._source, script))
        extra: dict[int, Array] = {}
        at, why = crew.follow(script.boards)
        while why:
            if why == jobs.GROW:
                script.grow(at)
            else:
                k = script.asking[at]
                names = stages[k].summands if why == jobs.DENSE else stages[k].computed
                self.dense_rows[k] += images * steps if why == jobs.DENSE else 0
                extra[k] = self._computed(stages[k], names, values, crew)
                script.put_extra(at, extra[k])
                at += 1
            at, why = crew.follow(script.boards, at)
        self.rows += images * steps
        self._note(script, steps)
        for name in self.relays:
            values.full(name)  # a relay that nothing reads still counts
        last = len(stages) - 1
        if not stages or stages[last].fires:
            out = values.full(settings.net.output)
        else:
            if not stages[last].listed:
                extra[last] = self._computed(stages[last], stages[last].computed, values, crew)
            out = self._currents(stages[last], script.out, extra.get(last, NOTHING), steps)
        return self._answer(out.reshape(images, steps, -1).transpose(0, 1), steps)

    def _computed(self, stage: Stage, names: Sequence[str], values: ChunkValues, crew: Crew) -> Array:
        """The currents of some summands, which torch computes, [row, pixel, lane]."""
        crew.rest()
        with torch_threads(crew.size):
            given = values.full if stage.whole else values.linear
            parts = [part for part in map(given, names) if part is not None]
            return stage.in_lanes(functools.reduce(torch.add, parts)) if parts else NOTHING

    def _currents(self, stage: Stage, listed: Array, extra: Array, steps: int) -> Tensor:
        """Those of an output, [images, steps, …]."""
        by_step = (len(self.x), steps, *stage.layout.shape)
        value = base(self.settings.net, stage.current, self.still) if stage.base is None else stage.base
        value = value.unsqueeze(1)
        if stage.listed:
            found = torch.empty(by_step, dtype=torch.float32)
            stage.layout.from_blocks(listed, found)
            value = found.add_(value)
        if len(extra):
            value = value + stage.layout.from_lanes(extra).view(by_step)
        return value.expand(by_step)

    def _note(self, script: Script, steps: int) -> None:
        noted = script.noted.reshape(len(self.populations), 2, len(self.x), steps).sum(2)
        self.noted.append(noted)
        for population, by_step in zip(self.populations, noted, strict=True):
            population.note(script.words[population.name], by_step[0], steps, self.step)

    def _answer(self, out: Tensor, steps: int) -> Tensor:
        logits, self.total = mean_outputs(out, self.total, self.step)
        self.logits.append(logits)
        self.step += steps
        return logits

    def _source(self, script: Script, node: Node, values: ChunkValues, steps: int) -> Tensor:
        """A node that torch reads but does not compute: spikes, a relay, or the coded input."""
        if isinstance(node.op, Fire):
            return self.by_name[node.name].as_floats(script.words[node.name], steps)
        if isinstance(node.op, MaxPool):
            return self.relays[node.name].run(values.full(node.inputs[0]), len(self.x), steps)
        assert isinstance(node.op, Input)
        coding = self.settings.coding
        coded = [encode(coding, self.x, self.step + s, self.numbers) for s in range(steps)]
        return torch.stack(coded, 1).flatten(0, 1)
