"""The state of a population and of a max-pool for some images, and what they did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ratenorm.engines.event import measure
from ratenorm.engines.event.arrays import Array, aligned, copied, zeros
from ratenorm.engines.event.board import where
from ratenorm.engines.event.layout import Layout
from ratenorm.engines.event.plan import Stage
from ratenorm.engines.event.script import State
from ratenorm.graph.net import Node
from ratenorm.graph.ops import MaxPool
from ratenorm.simulate.result import Fit


class States(NamedTuple):
    """Counts and potentials of some images, in blocks."""

    layout: Layout
    images: int
    counts: Array
    potential: Array


class PopulationState:
    """Potentials and counts, and what was measured."""

    def __init__(
        self, stage: Stage, images: int, states: Array, address: int, target: Tensor | None, first_spikes: bool
    ) -> None:
        """`states`, at that address, are two numbers for each neuron and image; what they are does not matter."""
        self.layout, self.name, self.images = stage.layout, stage.name, images
        size = images * self.layout.size
        self._potential, self._counts = states[:size], states[size:]
        self._fresh = True  # nothing is in them yet: the first chunk begins with zeros of its own, which are at hand
        if stage.start is not None:
            self._clear()
            self._potential.reshape(images, -1)[:] = stage.start
        self._given_away = False  # to a result, which must not change any more
        self._where = [address, size, address + self._potential.nbytes, size]
        self._target = target
        self._goal = None if target is None else aligned(self.layout.to_lanes(target).numpy())
        self._fit_counts = None if target is None else zeros(size, np.int32)
        self._sums: list[Array] = []  # growth of |n|^2 and of n.r in each step
        self._first = np.zeros(size, np.int32) if first_spikes else None

    def _clear(self) -> None:
        """Where nothing has happened, counts and potentials are zero."""
        if self._fresh:
            self._potential[:] = self._counts[:] = 0.0
            self._fresh = False

    def begin(self) -> State:
        """Before a chunk: where it goes on."""
        if self._given_away:
            self._counts, self._potential, self._given_away = copied(self._counts), copied(self._potential), False
            self._where = where(self._potential, self._counts)
        fresh, self._fresh = self._fresh, False
        return State(self._where, fresh)

    def note(self, words: Array, spikes: Array, steps: int, first_step: int) -> None:
        """After a chunk: what it did, in words, and how often it spiked at each step."""
        neurons = self.layout.size
        if self._goal is not None and self._fit_counts is not None:
            sums = np.zeros((steps, 2))
            measure.measure_fit(words, self.images, steps, neurons, self._fit_counts, self._goal, sums)
            self._sums.append(np.column_stack([2 * sums[:, 0] + spikes, sums[:, 1]]))
        if self._first is not None:
            measure.note_first(words, self.images, steps, neurons, first_step, self._first)

    def as_floats(self, words: Array, steps: int) -> Tensor:
        """The spikes of a chunk as torch reads them, [images * steps, …], channels last in memory."""
        layout = self.layout
        rows = self.images * steps
        out = zeros(rows * layout.pixels * layout.channels, np.float32)
        measure.unpack(words, layout.words, layout.channels, out)
        last = torch.from_numpy(out).view(rows, *layout.shape[1:], layout.channels)
        return last.movedim(-1, 1) if layout.shape else last.view(rows)

    def states(self) -> States:
        """What every neuron has come to, as it lies here; whoever has it may keep it."""
        self._clear()
        self._given_away = True
        return States(self.layout, self.images, self._counts, self._potential)

    def fit(self) -> Fit | None:
        if self._target is None:
            return None
        # |n / t - r|^2 = |n|^2 / t^2 - 2 n.r / t + |r|^2, where |n|^2 and n.r change only when a neuron spikes
        rates = self._target.double()
        squares, products = np.concatenate(self._sums).cumsum(0).T
        time = np.arange(1, len(squares) + 1)
        power = float(rates.square().sum())
        error = np.maximum(squares / time**2 - 2 * products / time + power, 0.0)
        return Fit(torch.from_numpy(error), float(rates.sum()), power)

    def first_spikes(self) -> Tensor | None:
        return None if self._first is None else self.layout.from_lanes(self._first)

    def keep(self, images: Sequence[int]) -> None:
        """Go on with some of the images only."""
        chosen = list(images)
        self._potential = aligned(self._potential.reshape(self.images, -1)[chosen])
        self._counts = aligned(self._counts.reshape(self.images, -1)[chosen])
        if self._target is not None and self._goal is not None and self._fit_counts is not None:
            self._target = self._target[chosen]
            self._goal = aligned(self._goal.reshape(self.images, -1)[chosen])
            self._fit_counts = aligned(self._fit_counts.reshape(self.images, -1)[chosen])
        if self._first is not None:
            self._first = aligned(self._first.reshape(self.images, -1)[chosen])
        self.images = len(chosen)
        self._where = where(self._potential, self._counts)


class RelayState:
    """What has accumulated before a max-pool, and its maximum a step ago."""

    def __init__(self, node: Node, fan_out: Tensor) -> None:
        self.node, self.fan_out = node, fan_out
        self.accumulated: Tensor | None = None
        self.largest: Tensor | None = None
        self._synaptic_ops: list[Tensor] = []

    def run(self, value: Tensor, images: int, steps: int) -> Tensor:
        """The spikes passed on over a chunk, [images * steps, …]."""
        pool, out = self.node.op, []
        assert isinstance(pool, MaxPool)
        by_step = value.reshape(images, steps, *value.shape[1:])
        for s in range(steps):
            now = by_step[:, s]
            self.accumulated = now.clone() if self.accumulated is None else self.accumulated + now
            largest = pool(self.accumulated)
            passed = largest if self.largest is None else largest - self.largest
            self.largest = largest
            self._synaptic_ops.append(((passed != 0).sum(0).double() * self.fan_out).sum())
            out.append(passed)
        return torch.stack(out, 1).flatten(0, 1)

    def synaptic_ops(self) -> Tensor:
        return torch.stack(self._synaptic_ops)

    def keep(self, images: Sequence[int]) -> None:
        """Go on with some of the images only."""
        if self.accumulated is not None and self.largest is not None:
            self.accumulated, self.largest = self.accumulated[list(images)], self.largest[list(images)]
