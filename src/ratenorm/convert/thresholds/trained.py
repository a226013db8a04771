"""The paper's own method: thresholds were trained (Ding et al. 2021, Eq. 6 and Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import sites
from ratenorm.convert.thresholds.base import Method, SiteScale, gain
from ratenorm.errors import CalibrationError
from ratenorm.graph.net import Graph
from ratenorm.graph.ops import Activation


@dataclass(frozen=True)
class Trained(Method):
    """v_th = theta of the Rate Norm layer; for clip(0, c) the ceiling c. Needs no data: nothing is left to choose."""

    label: ClassVar[str] = "trained"
    papers: ClassVar[tuple[str, ...]] = ("ding2021",)
    needs_data: ClassVar[bool] = False

    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        result: dict[str, SiteScale] = {}
        for node in sites(graph):
            assert isinstance(node.op, Activation)
            if node.op.ceiling is None:
                raise CalibrationError(
                    f"Converting {node.name!r} with trained thresholds: it is a plain ReLU and has none. Use MaxNorm, "
                    "Percentile(99.9) or another method with calibration images, or train with RateNorm."
                )
            result[node.name] = SiteScale(node.op.ceiling.clone(), node.op.ceiling * gain(node))
        return result
