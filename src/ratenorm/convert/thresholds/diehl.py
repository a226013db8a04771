"""Diehl et al. 2015: model-based norm from the weights alone, data-based norm from weights and activations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import Maximum, observe, sites
from ratenorm.convert.thresholds.base import Method, SiteScale, from_thresholds, gain
from ratenorm.errors import SettingError
from ratenorm.graph.net import Graph, Node
from ratenorm.graph.ops import Activation, Affine, Conv, Input, Linear

# The bound grows from layer to layer, and in a network of thirty beyond what a float32 holds. A neuron with this
# threshold never fires either.
LARGEST = 2.0**96


@dataclass(frozen=True)
class ModelNorm(Method):
    """theta = the largest input a neuron could ever receive: all inputs with positive weight at their largest, the
    others at their smallest. From the weights alone, and slow: such an input hardly ever occurs.

    `low` and `high` bound the pixels; where they are not given, the calibration images' own range is taken.
    """

    low: float | None = None
    high: float | None = None
    label: ClassVar[str] = "model"
    papers: ClassVar[tuple[str, ...]] = ("diehl2015",)

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise SettingError(f"ModelNorm: the pixels' range is [{self.low}, {self.high}], it must not be empty.")

    @classmethod
    def parse_arguments(cls, arguments: list[str]) -> Method:
        """model, or model:LOW:HIGH"""
        if len(arguments) not in (0, 2):
            raise SettingError("ModelNorm: it takes no setting, or two: the smallest and the largest pixel.")
        return cls(*(float(a) for a in arguments))

    def _range(self, calibration: Calibration | None) -> tuple[float, float]:
        if self.low is not None and self.high is not None:
            return self.low, self.high
        low, high = self.data(calibration).pixel_range()
        return low if self.low is None else self.low, high if self.high is None else self.high

    @torch.no_grad()
    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        low, high = self._range(calibration)
        bounds: dict[str, tuple[Tensor, Tensor]] = {}
        thresholds: dict[str, Tensor] = {}
        kind = next(iter(graph.dtypes), torch.float32)
        for node in graph.nodes:
            if isinstance(node.op, Input):
                shape = (1, *graph.input_shape)
                bounds[node.name] = (
                    torch.full(shape, float(low), dtype=kind),
                    torch.full(shape, float(high), dtype=kind),
                )
                continue
            lows, highs = zip(*(bounds[i] for i in node.inputs), strict=True)
            if isinstance(node.op, Activation):
                top = highs[0].amax().clamp_max(LARGEST).reshape(1)
                thresholds[node.name] = top if node.op.ceiling is None else torch.minimum(top, node.op.ceiling)
                # One number a layer, as in the paper: every neuron of it might reach the layer's largest value.
                full = (thresholds[node.name] * gain(node)).expand_as(highs[0]).clone()
                bounds[node.name] = (torch.zeros_like(full), full)
            else:
                bounds[node.name] = _interval(node, lows, highs)
        return from_thresholds(graph, thresholds, self)


def _interval(node: Node, lows: tuple[Tensor, ...], highs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Bounds of an affine operation: positive weights see the same bound, negative ones the other."""
    op = node.op
    if isinstance(op, Conv | Linear):
        rising, falling = (
            replace(op, weight=op.weight.clamp(min=0), bias=None),
            replace(op, weight=op.weight.clamp(max=0), bias=None),
        )
        bias = op(torch.zeros_like(lows[0]))
        return rising(*lows) + falling(*highs) + bias, rising(*highs) + falling(*lows) + bias
    if isinstance(op, Affine):
        ends = torch.stack([op(lows[0]), op(highs[0])])
        return ends.amin(0), ends.amax(0)
    return op(*lows), op(*highs)


@dataclass(frozen=True)
class DataNorm(Method):
    """theta = the larger of the layer's largest activation on the calibration images and its largest weight."""

    label: ClassVar[str] = "data"
    papers: ClassVar[tuple[str, ...]] = ("diehl2015",)

    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        activations = observe(graph, self.data(calibration), lambda _: Maximum())
        weights = {node.name: _largest_weight(graph, node) for node in sites(graph)}
        return from_thresholds(graph, {n: torch.maximum(a, weights[n]) for n, a in activations.items()}, self)


def _largest_weight(graph: Graph, site: Node) -> Tensor:
    """The largest weight on the way from the sites before to this one."""
    largest, waiting = torch.zeros(1), list(site.inputs)
    while waiting:
        node = graph[waiting.pop()]
        if isinstance(node.op, Conv | Linear):
            largest = torch.maximum(largest, node.op.weight.amax().reshape(1))
        if not isinstance(node.op, Activation):
            waiting += node.inputs
    return largest
