"""Robust Norm (Rueckauer et al. 2017): the threshold is a high percentile of the layer's activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import ExactPercentile, observe
from ratenorm.convert.thresholds.base import Method, SiteScale, from_thresholds
from ratenorm.errors import SettingError
from ratenorm.graph.net import Graph


@dataclass(frozen=True)
class Percentile(Method):
    """theta = the percentile of all activations of the layer, zeros included: exact, for any number of values."""

    percent: float = 99.9
    label: ClassVar[str] = "percentile"
    papers: ClassVar[tuple[str, ...]] = ("rueckauer2017",)

    def __post_init__(self) -> None:
        if not 0.0 < self.percent <= 100.0:
            raise SettingError(f"Percentile: the percentile is {self.percent}, it must lie in (0, 100].")

    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        data = self.data(calibration)
        found = observe(
            graph,
            data,
            lambda node: ExactPercentile(self.percent, len(data) * torch.Size(graph.shapes[node.name]).numel()),
        )
        return from_thresholds(graph, found, self)
