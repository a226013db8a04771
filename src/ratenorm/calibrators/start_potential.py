"""Advanced calibration (Li et al. 2021): the start potential of each neuron corrects its mean rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ratenorm.calibrators.base import Calibrator
from ratenorm.calibrators.walk import Population
from ratenorm.graph.ops import Fire


@dataclass(frozen=True)
class StartPotential(Calibrator):
    """v(0) of each neuron += T * threshold * (mean activation - mean rate over T steps), population by population."""

    label: ClassVar[str] = "start-potential"
    papers: ClassVar[tuple[str, ...]] = ("li2021",)
    after: ClassVar[str] = "the start potentials' share of the rate fades as 1/t"

    def fit(self, population: Population) -> Fire:
        fire = population.fire
        rate = population.run(fire).double() / (population.images * population.steps)
        gap = (population.target - rate).float() * fire.threshold * population.steps
        fire = replace(fire, start=fire.start + gap)
        population.run(fire)
        return fire
