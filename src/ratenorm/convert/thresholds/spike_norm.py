"""SpikeNorm (Sengupta et al. 2019): layer by layer, the largest input current while the layers before it spike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.observe import sites
from ratenorm.convert.thresholds.base import Method, SiteScale, from_thresholds
from ratenorm.core.neuron import integrate_and_fire_
from ratenorm.errors import CalibrationError, SettingError
from ratenorm.graph.net import Graph, Node
from ratenorm.graph.ops import Activation, Input, MaxPool

_CHUNK = 16  # images at a time
_KEPT_BYTES = 2**31  # of currents kept between the two passes over a layer; what does not fit is computed twice


@dataclass(frozen=True)
class SpikeNorm(Method):
    """theta_l = max over images and `steps` of the current into layer l, given theta_1 .. theta_{l-1}.

    Spikes carry their threshold as amplitude (Theorem 1: the same as unit spikes with balanced thresholds). The spike
    trains of the layers still needed are kept as bytes, so every layer is simulated once and not once for each layer
    behind it; `images` bounds that memory; which of them are taken depends on their content, not on how they arrive.
    """

    steps: int = 64
    images: int = 64
    label: ClassVar[str] = "spike"
    papers: ClassVar[tuple[str, ...]] = ("sengupta2019",)

    def __post_init__(self) -> None:
        if self.steps < 1 or self.images < 1:
            raise SettingError(f"SpikeNorm: steps is {self.steps} and images {self.images}; both must be at least 1.")

    @torch.no_grad()
    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        chosen = self.data(calibration).in_own_order()[: self.images]
        run = _LayerByLayer(graph, chosen, self.steps)
        scales: dict[str, SiteScale] = {}
        for site in sites(graph):
            threshold = run.largest_current(site).reshape(1)
            assert isinstance(site.op, Activation)
            if site.op.ceiling is not None:
                threshold = torch.minimum(threshold, site.op.ceiling)
            if not float(threshold) > 0:
                raise CalibrationError(
                    f"Calibrating {site.name!r} with {self!r}: no positive current arrives in {self.steps} steps on "
                    f"{len(chosen)} images. Give more steps or images, or set its threshold by hand with Override."
                )
            one = Graph(
                (graph.nodes[0], Node(site.name, site.op, (graph.nodes[0].name,))), site.name, graph.input_shape
            )
            scales[site.name] = from_thresholds(one, {site.name: threshold}, self)[site.name]
            run.fire(site, scales[site.name])
        return scales


class _LayerByLayer:
    """The network simulated one layer at a time over all steps (Eq. 3 has no delay between layers)."""

    def __init__(self, graph: Graph, images: Tensor, steps: int) -> None:
        self.graph, self.images, self.steps = graph, images, steps
        self.trains: dict[str, Tensor] = {}  # [T, N, …] of bytes
        self.scale: dict[str, SiteScale] = {}
        self.kept: dict[int, Tensor] = {}  # by first image: currents of the site that will fire next

    def largest_current(self, site: Node) -> Tensor:
        self.kept.clear()
        largest, free = [], _KEPT_BYTES
        for first in range(0, len(self.images), _CHUNK):
            current = self._current(site, first)
            largest.append(current.amax())
            free -= current.nbytes
            if free >= 0:
                self.kept[first] = current
        return torch.stack(largest).amax()

    def fire(self, site: Node, scale: SiteScale) -> None:
        trains = torch.empty(self.steps, len(self.images), *self.graph.shapes[site.name], dtype=torch.uint8)
        for first in range(0, len(self.images), _CHUNK):
            current = self.kept.pop(first) if first in self.kept else self._current(site, first)
            potential = torch.zeros_like(current[0])
            for t in range(self.steps):
                spikes = integrate_and_fire_(potential, current[t], scale.threshold)
                trains[t, first : first + _CHUNK] = spikes.to(torch.uint8)
        self.trains[site.name], self.scale[site.name] = trains, scale
        self._forget()

    def _current(self, site: Node, first: int) -> Tensor:
        """[T, n, …]: the input current of a site for a chunk of images."""
        values: dict[str, Tensor] = {}
        needed = self._between(site)
        images = self.images[first : first + _CHUNK]
        for node in self.graph.nodes:
            if node.name not in needed:
                continue
            if isinstance(node.op, Input):
                values[node.name] = images.expand(self.steps, *images.shape).flatten(0, 1)
            elif node.name in self.trains:
                train = self.trains[node.name][:, first : first + _CHUNK].flatten(0, 1)
                values[node.name] = train * self.scale[node.name].amplitude
            elif isinstance(node.op, MaxPool):
                values[node.name] = self._relay(node.op, values[node.inputs[0]], len(images))
            else:
                values[node.name] = node.op(*(values[i] for i in node.inputs))
        current: Tensor = values[site.inputs[0]].unflatten(0, (self.steps, len(images)))
        return current

    def _relay(self, pool: MaxPool, value: Tensor, batch: int) -> Tensor:
        largest = pool(value.unflatten(0, (self.steps, batch)).cumsum(0).flatten(0, 1)).unflatten(
            0, (self.steps, batch)
        )
        return torch.cat([largest[:1], largest.diff(dim=0)]).flatten(0, 1)

    def _between(self, site: Node) -> set[str]:
        """The nodes between the sites before and this one, both ends of the way included."""
        found: set[str] = set()
        waiting = list(site.inputs)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += () if name in self.trains else self.graph[name].inputs
        return found

    def _forget(self) -> None:
        """Drop the spike trains that no site still to come reads."""
        ahead: set[str] = set()
        for site in sites(self.graph):
            if site.name not in self.scale:
                ahead |= self._between(site)
        self.trains = {name: train for name, train in self.trains.items() if name in ahead}
