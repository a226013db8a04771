"""How far the rates of a population are from the analog ones after every step, kept as sums that only spikes change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ratenorm.simulate.event.tables import Array
from ratenorm.simulate.result import Fit


class FitSums:
    """|n / t - r|^2 = |n|^2 / t^2 - 2 n.r / t + |r|^2, where |n|^2 and n.r change only when a neuron spikes."""

    def __init__(self, target: Tensor) -> None:
        self._target = target
        self._counts = torch.zeros_like(target)
        self._sums: list[Array] = []  # growth of |n|^2 and of n.r in each step

    def add(self, spikes: Tensor) -> None:
        """After a chunk, with its spikes [images, steps, …]."""
        sums = np.empty((spikes.shape[1], 2))
        for step, now in enumerate(spikes.unbind(1)):  # whole numbers, exact in float64
            sums[step] = (
                float((now * (2 * self._counts + 1)).sum(dtype=torch.float64)),
                float((now * self._target).sum(dtype=torch.float64)),
            )
            self._counts += now
        self._sums.append(sums)

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
        self._target, self._counts = self._target[list(images)], self._counts[list(images)]


def note_first(first: Tensor, spikes: Tensor, before: int) -> None:
    """first = the step, from 1, of each neuron's first spike, where it had none before; 0 for none."""
    for step, now in enumerate(spikes.unbind(1), before + 1):
        first[(first == 0) & (now > 0)] = step
