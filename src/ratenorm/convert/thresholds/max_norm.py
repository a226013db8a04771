"""Max Norm (Rueckauer et al. 2017): the threshold is the largest activation of the layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import Maximum, observe
from ratenorm.convert.thresholds.base import Method, SiteScale, from_thresholds
from ratenorm.graph.net import Graph


@dataclass(frozen=True)
class MaxNorm(Method):
    """theta = max over the calibration images of the layer's activations: the exact maximum, no moving average."""

    label: ClassVar[str] = "max"
    papers: ClassVar[tuple[str, ...]] = ("rueckauer2017",)

    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        return from_thresholds(graph, observe(graph, self.data(calibration), lambda _: Maximum()), self)
