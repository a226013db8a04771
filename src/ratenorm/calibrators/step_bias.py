"""A bias for each step and channel (FTBC): what spikes that arrive too early or too late bring is taken off again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from ratenorm.calibrators.base import Calibrator
from ratenorm.calibrators.walk import Population
from ratenorm.errors import UsageError
from ratenorm.graph.ops import Fire


@dataclass(frozen=True)
class StepBias(Calibrator):
    """Match each channel's mean of spikes to its mean activation, at each step.

    For each population in order, and each step t, with the populations before it spiking:

        beta[t, c] -= rate * threshold * (mean of spikes at step t - mean activation)      `repeats` times

    The means are over images and space. The current at step t is then W s(t) + b + beta[t]. No bias is added after the
    last calibrated step.

    Args:
        rate: How much of the difference each repetition corrects.
        repeats: Number of repetitions.
    """

    rate: float = 0.4
    repeats: int = 6
    label: ClassVar[str] = "step-bias"
    papers: ClassVar[tuple[str, ...]] = ("wu2024",)
    after: ClassVar[str] = "no bias is added; the network converges as it would without calibration"

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0 or not 1 <= self.repeats <= 1000:
            raise UsageError(
                f"Calibrating by step biases: rate is {self.rate} and repeats {self.repeats}; rate must lie in (0, 1] "
                "and repeats in 1 to 1000."
            )

    def fit(self, population: Population) -> Fire:
        fire = population.fire
        target = population.by_channel(population.target).float()
        count = population.images * (population.target.numel() // target.numel())
        potentials = [population.start(chunk) for chunk in population.chunks]
        rows: list[Tensor] = []
        for step in range(1, population.steps + 1):
            before = fire.bias_at(step)
            for chunk, potential in enumerate(potentials):
                potential += population.current(chunk, step)
                if before is not None:
                    potential += before
            bias = torch.zeros_like(target) * fire.threshold
            for _ in range(self.repeats):
                sums = sum(((p + bias) >= fire.threshold).sum(0) for p in potentials)
                assert isinstance(sums, Tensor)
                mean = _channel_sums(population.total(sums)) / count
                bias = bias - self.rate * fire.threshold * (mean - target)
            for chunk, potential in enumerate(potentials):
                potential += bias
                spikes = (potential >= fire.threshold).to(potential.dtype)
                potential -= spikes * fire.threshold
                population.emit(chunk, step, spikes)
            rows.append(bias if before is None else bias + before)
        rows.append(torch.zeros_like(rows[-1]) if fire.step_bias is None else fire.step_bias[-1].expand_as(rows[-1]))
        return replace(fire, step_bias=torch.stack(rows))


def _channel_sums(sums: Tensor) -> Tensor:
    """Whole numbers […] added up over space, as [C, 1, …]."""
    if sums.ndim > 1:
        sums = sums.flatten(1).sum(1).view(-1, *[1] * (sums.ndim - 1))
    return sums.double().float()
