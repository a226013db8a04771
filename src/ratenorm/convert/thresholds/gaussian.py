"""Thresholds from mean and deviation of the pre-activations alone, as if they were Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ratenorm import distributed
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import sites
from ratenorm.convert.thresholds.base import Method, SiteScale, from_thresholds
from ratenorm.errors import SettingError
from ratenorm.graph.net import Graph, Node, run

BISECTIONS = 60
RARELY = 1e-6  # a channel that is positive more rarely takes the largest threshold of its layer


@dataclass(frozen=True)
class GaussianThresholds(Method):
    """theta_c minimises the expected squared error of T steps on a Gaussian of the channel's mean and deviation.

        error(theta) = theta^2 / (12 T^2) P(0 < z < theta)  +  E[(z - theta)^2; z > theta]

    The first term is the rounding to T levels, the second the clipping. No image and no activation is kept.

    Args:
        steps: T, the number of steps the thresholds are for.
    """

    steps: int = 4
    label: ClassVar[str] = "gaussian"
    papers: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= 1024:
            raise SettingError(f"GaussianThresholds: steps is {self.steps}; it must lie in 1 to 1024.")

    @torch.no_grad()
    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        thresholds: dict[str, Tensor] = {}
        for name, (mean, deviation) in _moments(graph, self.data(calibration)).items():
            found = best_threshold(mean, deviation, self.steps)
            shape = (-1, *[1] * (len(graph.shapes[name]) - 1))
            thresholds[name] = torch.where(found > 0, found, found.amax()).float().reshape(shape)
        return from_thresholds(graph, thresholds, self)


def best_threshold(mean: Tensor, deviation: Tensor, steps: int) -> Tensor:
    """Where the derivative of the expected error is 0, by bisection; 0 where hardly anything is positive."""
    low, high = torch.zeros_like(mean), (mean + 10.0 * deviation).clamp_min(0.0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        rising = _slope(middle, mean, deviation, steps) > 0
        low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
    active = 1.0 - _below(-mean / deviation.clamp_min(1e-30))
    return torch.where(active > RARELY, high, 0.0)


def _slope(theta: Tensor, mean: Tensor, deviation: Tensor, steps: int) -> Tensor:
    """The derivative of the expected error."""
    spread = deviation.clamp_min(1e-30)
    upper, lower = (theta - mean) / spread, -mean / spread
    inside = _below(upper) - _below(lower)
    cut_off = spread * _density(upper) + (mean - theta) * (1.0 - _below(upper))  # E[(z - theta)+]
    levels = 12.0 * steps**2
    return 2.0 * theta * inside / levels + theta**2 * _density(upper) / (spread * levels) - 2.0 * cut_off


def _density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x**2) / math.sqrt(2.0 * math.pi)


def _below(x: Tensor) -> Tensor:
    return 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def _moments(graph: Graph, calibration: Calibration) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and standard deviation of each channel's pre-activation, [C] in float64."""
    before = {site.inputs[0]: site for site in sites(graph)}
    sums: dict[str, Tensor] = {}

    def look(node: Node, value: Tensor) -> Tensor:
        if node.name in before:
            site = before[node.name]
            z = value.double()
            over = [0, *range(2, z.ndim)]
            count = z.new_full((z.shape[1],), z.numel() / z.shape[1])
            found = torch.stack([count, z.sum(over), z.square().sum(over)])
            sums[site.name] = found + sums.get(site.name, torch.zeros_like(found))
        return value

    for batch in calibration:
        run(graph, batch, look)
    result: dict[str, tuple[Tensor, Tensor]] = {}
    for name, own in sums.items():
        count, first, second = distributed.total(own) if calibration.shared else own
        mean = first / count
        result[name] = mean, (second / count - mean**2).clamp_min(0.0).sqrt()
    return result
