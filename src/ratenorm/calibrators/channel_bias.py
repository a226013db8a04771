"""Light calibration (Li et al. 2021): one bias for each channel corrects its mean rate over a number of steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ratenorm.calibrators.base import Calibrator
from ratenorm.calibrators.walk import Population
from ratenorm.graph.ops import Fire


@dataclass(frozen=True)
class ChannelBias(Calibrator):
    """b_c += threshold * (mean activation - mean rate), population by population, with those before it spiking."""

    label: ClassVar[str] = "channel-bias"
    papers: ClassVar[tuple[str, ...]] = ("li2021",)
    after: ClassVar[str] = "the corrected biases stay, so the limit moves with them"

    def fit(self, population: Population) -> Fire:
        fire = population.fire
        rate = population.run(fire).double() / (population.images * population.steps)
        gap = population.by_channel(population.target - rate).float() * fire.threshold
        bias = gap.unsqueeze(0) if fire.step_bias is None else fire.step_bias + gap
        fire = replace(fire, step_bias=bias)
        population.run(fire)
        return fire
