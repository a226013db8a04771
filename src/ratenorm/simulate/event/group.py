"""A few images on their way through the network: one call of the core a chunk, and what torch computes between."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ratenorm.core.coding import Coding
from ratenorm.errors import SimulationError
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import Input, MaxPool
from ratenorm.simulate.dense import analog_rates, chunks, encode, mean_outputs
from ratenorm.simulate.event import _core
from ratenorm.simulate.event.affine import ChunkValues, base, still_values
from ratenorm.simulate.event.fit import FitSums, note_first
from ratenorm.simulate.event.plan import Plan, Stage
from ratenorm.simulate.event.relays import RelayState
from ratenorm.simulate.event.tables import Array
from ratenorm.simulate.event.threads import torch_threads

DONE, DENSE = 0, 2  # why the core stops: all is done; torch computes a whole current faster (else a part of it)


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
    """The state of some images, and how it advances."""

    def __init__(self, settings: Settings, x: Tensor, first_image: int) -> None:
        net, stages = settings.net, settings.plan.stages
        self.settings = settings
        self.step = 0
        self._broken = False  # stopped in the middle of a chunk
        self.total: Tensor | None = None
        self.logits: list[Tensor] = []
        self.tallies: list[Array] = []  # [stage, (spikes, synaptic operations), step] of every chunk
        self.rows = 0  # run so far
        self.dense_rows = [0] * len(stages)  # how many of them by convolution
        self.state = _core.State(settings.plan.program, len(x))
        targets = analog_rates(net, x) if settings.fit else {}
        firing = [k for k, stage in enumerate(stages) if stage.fires]
        self.fits = {k: FitSums(targets[stages[k].name]) for k in firing if targets}
        early = firing if settings.first_spikes else ()
        self.first_spikes = {k: torch.zeros(len(x), *stages[k].layout.shape, dtype=torch.int32) for k in early}
        native = settings.plan.numbers
        self.relays = {
            n.name: RelayState(n, net.fan_out[n.name])
            for n in net.nodes
            if isinstance(n.op, MaxPool) and n.name not in native
        }
        self._take(x, list(range(first_image, first_image + len(x))), still_values(net, x, settings.plan.static))

    def _take(self, x: Tensor, numbers: list[int], still: dict[str, Tensor]) -> None:
        """Set up for these images: what does not change from step to step."""
        self.x, self.numbers, self.still = x, numbers, still
        self._bases: list[Array] = []  # of the stages whose constant current depends on the images
        for stage in self.settings.plan.stages:
            if stage.base is None and not stage.relays:
                value = base(self.settings.net, stage.current, still)
                self._bases.append(stage.in_lanes(value.expand(len(x), *stage.layout.shape)))

    def keep(self, images: Sequence[int]) -> None:
        """Continue with some of the images only."""
        chosen = list(images)
        for relay in self.relays.values():
            relay.keep(chosen)
        for fit in self.fits.values():
            fit.keep(chosen)
        self.first_spikes = {k: first[chosen] for k, first in self.first_spikes.items()}
        self.state = self.state.kept(chosen)
        if self.total is not None:
            self.total = self.total[chosen]
        still = {name: value[chosen] for name, value in self.still.items()}
        self._take(self.x[chosen], [self.numbers[i] for i in chosen], still)

    def advance(self, steps: int, chunk: int, threads: int) -> Tensor:
        """Run `steps` further steps, a chunk at a time; returns their logits [steps, images, classes]."""
        if self._broken:
            raise SimulationError(
                f"Simulating: these images were interrupted after step {self.step}, and their neurons are not all at "
                "the same step. Start a new simulation."
            )
        self._broken = True
        logits = torch.cat([self._chunk(size, threads) for size in chunks(steps, chunk)])
        self._broken = False
        return logits

    def _chunk(self, steps: int, threads: int) -> Tensor:
        made = self.settings.plan
        chunk = made.take_chunk(len(self.x), steps, threads)
        values = ChunkValues(self.settings.net, self.still, steps, partial(self._source, chunk))
        self._run(chunk, values, steps, threads)
        self._note(chunk, steps)
        for name in self.relays:
            values.full(name)  # a relay that nothing reads still counts
        logits = self._answer(self._output(chunk, values, steps, threads), steps)
        made.give_chunk(len(self.x), steps, threads, chunk)
        return logits

    def _run(self, chunk: _core.Chunk, values: ChunkValues, steps: int, threads: int) -> None:
        """The core runs all stages of a chunk. Where torch has currents to compute it stops and says of which stage;
        the next call hands them over and resumes there. While the core runs, other Python threads can.
        """
        stages, choose = self.settings.plan.stages, self.settings.choose
        at, why = chunk.run(self.state, self._bases, self.step, choose=choose)
        while why != DONE:
            names = stages[at].summands if why == DENSE else stages[at].computed
            self.dense_rows[at] += len(self.x) * steps if why == DENSE else 0
            extra = self._computed(stages[at], names, values, threads)
            at, why = chunk.run(self.state, self._bases, self.step, at, extra, choose=choose)
        self.rows += len(self.x) * steps

    def _computed(self, stage: Stage, names: Sequence[str], values: ChunkValues, threads: int) -> Array:
        """The currents of some summands, which torch computes, [row, pixel, lane]."""
        with torch_threads(threads):
            given = values.full if stage.whole else values.linear
            return stage.in_lanes(functools.reduce(torch.add, map(given, names)))

    def _output(self, chunk: _core.Chunk, values: ChunkValues, steps: int, threads: int) -> Tensor:
        """The output of every step, [images, steps, …]."""
        made, net = self.settings.plan, self.settings.net
        by_step = (len(self.x), steps, *net.shapes[net.output])
        stage = made.outside
        if stage is None and net.output in made.numbers and not made.stages[-1].spikes:
            return torch.from_numpy(chunk.output()).view(by_step)
        if stage is None:
            return values.full(net.output).view(by_step)
        value = base(net, stage.current, self.still) if stage.base is None else stage.base
        with torch_threads(threads):
            given = values.full if stage.whole else values.linear
            parts = [given(name) for name in stage.computed]
        value = value.unsqueeze(1)
        if parts:
            value = value + functools.reduce(torch.add, parts).view(by_step)
        return value.expand(by_step)

    def _note(self, chunk: _core.Chunk, steps: int) -> None:
        self.tallies.append(chunk.tallies())
        for k in self.fits.keys() | self.first_spikes.keys():
            spikes = self._spikes(chunk, k).unflatten(0, (len(self.x), steps))
            if k in self.fits:
                self.fits[k].add(spikes)
            if k in self.first_spikes:
                note_first(self.first_spikes[k], spikes, self.step)

    def _spikes(self, chunk: _core.Chunk, k: int) -> Tensor:
        """The spikes of a stage as torch reads them, [row, …], channels last in memory."""
        shape = self.settings.plan.stages[k].layout.shape
        spikes = torch.from_numpy(chunk.spikes(k))
        return spikes.view(-1, *shape[1:], shape[0]).movedim(-1, 1) if shape else spikes.flatten()

    def _answer(self, by_image: Tensor, steps: int) -> Tensor:
        out = by_image.reshape(len(self.x), steps, -1).transpose(0, 1)
        logits, self.total = mean_outputs(out, self.total, self.step)
        self.logits.append(logits)
        self.step += steps
        return logits

    def _source(self, chunk: _core.Chunk, node: Node, values: ChunkValues, steps: int) -> Tensor:
        """A node that torch reads but does not compute: spikes, a relay, or the coded input."""
        number = self.settings.plan.numbers.get(node.name)
        if number is not None:
            return self._spikes(chunk, number)
        if isinstance(node.op, MaxPool):
            return self.relays[node.name].run(values.full(node.inputs[0]), len(self.x), steps)
        assert isinstance(node.op, Input)
        coding = self.settings.coding
        coded = [encode(coding, self.x, self.step + s, self.numbers) for s in range(steps)]
        return torch.stack(coded, 1).flatten(0, 1)
