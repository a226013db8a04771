"""A factor on the thresholds of another method. `Scaled(SpikeNorm(), 0.8)` is RMP (Han et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.thresholds.base import Method, SiteScale, parse
from ratenorm.convert.thresholds.spike_norm import SpikeNorm
from ratenorm.errors import SettingError
from ratenorm.graph.net import Graph


@dataclass(frozen=True)
class Scaled(Method):
    """theta -> factor * theta: faster, and saturated where an activation exceeds the new threshold.

    With `preserve` the spike's amplitude shrinks with the threshold, so that the value it codes stays and biases keep
    their weight. Without it spikes keep their amplitude, as in a network whose weights are left alone: each layer then
    amplifies by
    1 / factor, which a network without biases does not notice but for saturation (Han et al. worked on such networks).
    """

    base: Method = field(default_factory=SpikeNorm)
    factor: float = 0.8
    preserve: bool = True
    label: ClassVar[str] = "scaled"
    papers: ClassVar[tuple[str, ...]] = ("han2020",)

    def __post_init__(self) -> None:
        if not self.factor > 0.0:
            raise SettingError(f"Scaled: the factor is {self.factor}, it must be positive.")

    @classmethod
    def parse_arguments(cls, arguments: list[str]) -> Method:
        """scaled:FACTOR:METHOD"""
        factor = float(arguments[0]) if arguments else 0.8
        return cls(parse(":".join(arguments[1:])) if len(arguments) > 1 else SpikeNorm(), factor)

    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        found = self.base.scales(graph, calibration)
        return {name: scale.times(self.factor, self.preserve) for name, scale in found.items()}
