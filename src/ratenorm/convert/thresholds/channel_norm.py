"""Channel-wise norm (Kim et al. 2020, Spiking-YOLO): Max Norm for each channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import ChannelMaximum, observe
from ratenorm.convert.thresholds.base import Method, SiteScale, from_thresholds
from ratenorm.graph.net import Graph


@dataclass(frozen=True)
class ChannelNorm(Method):
    """theta_c = max of the channel's activations. A channel that was never active takes the layer's maximum: it codes
    nothing either way, and a threshold of 0 would let it fire on any rounding error."""

    label: ClassVar[str] = "channel"
    papers: ClassVar[tuple[str, ...]] = ("kim2020",)

    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        found = observe(graph, self.data(calibration), lambda _: ChannelMaximum())
        return from_thresholds(graph, {name: torch.where(t > 0, t, t.amax()) for name, t in found.items()}, self)
