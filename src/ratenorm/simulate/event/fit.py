"""How far the rates of a population are from the analog ones after every step, kept as sums that only spikes change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ratenorm.simulate.event import _core
from ratenorm.simulate.event.layout import Layout
from ratenorm.simulate.event.tables import Array, flat
from ratenorm.simulate.result import Fit


class FitSums:
    """|n / t - r|^2 = |n|^2 / t^2 - 2 n.r / t + |r|^2, where |n|^2 and n.r change only when a neuron spikes."""

    def __init__(self, layout: Layout, target: Tensor) -> None:
        self._target = target
        self._goal = flat(layout.to_lanes(target).numpy(), np.float32)
        self._counts: Array = np.zeros(len(self._goal), np.int32)
        self._sums: list[Array] = []  # growth of |n|^2 and of n.r in each step

    def add(self, chunk: _core.Chunk, stage: int, spikes: Array, steps: int) -> None:
        """After a chunk."""
        sums = np.zeros((steps, 2))
        chunk.add_fit(stage, self._counts, self._goal, sums)
        self._sums.append(np.column_stack([2 * sums[:, 0] + spikes, sums[:, 1]]))

    def fit(self) -> Fit:
        """The fit after every step."""
        rates = self._target.double()
        squares, products = np.concatenate(self._sums).cumsum(0).T
        time = np.arange(1, len(squares) + 1)
        power = float(rates.square().sum())
        error = np.maximum(squares / time**2 - 2 * products / time + power, 0.0)
        return Fit(torch.from_numpy(error), float(rates.sum()), power)

    def keep(self, images: Sequence[int]) -> None:
        """Continue with some of the images only."""
        chosen, count = list(images), len(self._target)
        self._target = self._target[chosen]
        self._goal = np.ascontiguousarray(self._goal.reshape(count, -1)[chosen]).reshape(-1)
        self._counts = np.ascontiguousarray(self._counts.reshape(count, -1)[chosen]).reshape(-1)
