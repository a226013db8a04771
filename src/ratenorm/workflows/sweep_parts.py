"""The finished parts of a sweep, so that one that was stopped goes on with the next setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import convert_graph, spiking, with_start
from ratenorm.convert.support import SupportReport
from ratenorm.convert.thresholds import Method, SiteScale
from ratenorm.graph.net import Graph, SpikingNet
from ratenorm.io.files import to_json
from ratenorm.io.run_folder import RunFolder
from ratenorm.simulate.simulate import EngineName, simulate
from ratenorm.workflows.fingerprint import of_graph, of_tensors
from ratenorm.workflows.resume import remembered

KINDS = {"float32": torch.float32, "float64": torch.float64}


class Finished:
    """What a sweep has found out so far, each part named by all that it depends on.

    Thresholds (of a method, a network and calibration images) are kept apart from accuracies (of thresholds, a network,
    a start, images and steps): training p' is the larger half of the work, and the chosen network is built from the
    very thresholds that were measured. Without a folder nothing is kept.
    """

    def __init__(
        self, folder: RunFolder | None, analog: Graph, calibration: Calibration, report: SupportReport
    ) -> None:
        self.folder, self.analog, self.calibration, self.report = folder, analog, calibration, report
        self.network = of_graph(analog)
        self.calibrated = {"network": self.network, "calibration": of_tensors(*calibration)}

    def scales(self, method: Method) -> dict[str, SiteScale]:
        def work() -> dict[str, Any]:
            found = convert_graph(self.analog, method, self.calibration, 0.0, self.report).scales
            return {site: {name: _plain(value) for name, value in vars(scale).items()} for site, scale in found.items()}

        kept = self._kept({"thresholds": method.to_json(), **self.calibrated}, work)
        return {site: SiteScale(**{name: _tensor(v) for name, v in scale.items()}) for site, scale in kept.items()}

    def accuracy(
        self, scales: dict[str, SiteScale], v0: float, images: Tensor, truth: Tensor, steps: int, engine: EngineName
    ) -> tuple[float, ...]:
        """After every step."""

        def work() -> dict[str, Any]:
            logits = simulate(self.net(scales, v0), images, steps, engine=engine).logits
            return {"accuracy": (logits.argmax(-1).cpu() == truth).double().mean(1).tolist()}

        name = {"network": self.network, "thresholds": _fingerprint(scales), "v0": v0}
        name |= {"images": of_tensors(images, truth), "steps": steps, "engine": engine}
        return tuple(self._kept(name, work)["accuracy"])

    def net(self, scales: dict[str, SiteScale], v0: float) -> SpikingNet:
        return with_start(spiking(self.analog, scales), v0)

    def _kept(self, name: dict[str, Any], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return work() if self.folder is None else remembered(self.folder, to_json(name), work)


def _fingerprint(scales: dict[str, SiteScale]) -> str:
    return of_tensors(*(t for _, scale in sorted(scales.items()) for t in (scale.threshold, scale.amplitude)))


def _plain(tensor: Tensor) -> dict[str, Any]:
    """A tensor as JSON that gives it back bit for bit: every float32 is a float64, which JSON writes in full."""
    return {"kind": str(tensor.dtype).removeprefix("torch."), "values": tensor.tolist()}


def _tensor(plain: dict[str, Any]) -> Tensor:
    return torch.tensor(plain["values"], dtype=KINDS[plain["kind"]])
