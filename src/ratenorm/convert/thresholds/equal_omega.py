"""Equal Omega: thresholds at which all layers have the same Omega, hence the same bound on K (Theorem 2)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import OmegaCeiling, observe
from ratenorm.convert.thresholds.base import Method, SiteScale, from_thresholds
from ratenorm.errors import SettingError
from ratenorm.graph.net import Graph


@dataclass(frozen=True)
class EqualOmega(Method):
    """theta = the threshold at which the layer's rates have this Omega; the largest activation where Omega is smaller.

    K < 2 Omega / t: no layer is to be slower than the others. A layer whose large activations are rare gets a threshold
    far below them, one with many keeps a high one.
    """

    omega: float = 2.0
    label: ClassVar[str] = "omega"
    papers: ClassVar[tuple[str, ...]] = ("ding2021",)

    def __post_init__(self) -> None:
        if not 1.0 < self.omega < inf:
            raise SettingError(
                f"EqualOmega: Omega is {self.omega}, it must be above 1, where all neurons are saturated."
            )

    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        found = observe(graph, self.data(calibration), lambda _: OmegaCeiling(self.omega))
        return from_thresholds(graph, found, self)
