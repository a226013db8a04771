"""The fastest network within a given loss: sweep lambda, p and the start potential on held-out images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import Conversion
from ratenorm.convert.support import SupportReport
from ratenorm.convert.thresholds import EqualOmega, Latency, MaxNorm, Method, Scaled, SiteScale, Trained
from ratenorm.core.energy import steps_to
from ratenorm.distributed import world
from ratenorm.errors import CalibrationError, UsageError
from ratenorm.graph.net import Graph, run
from ratenorm.io.run_folder import RunFolder
from ratenorm.simulate.simulate import EngineName
from ratenorm.workflows.sweep_parts import Finished

FACTORS = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2)  # p on the maxima
LAMBDAS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of trained p', one a layer
OMEGAS = (1.9, 2.3, 2.7)  # one Omega for all layers, nothing trained
STARTS = (0.0, 0.5)


@dataclass(frozen=True)
class Candidate:
    """One setting and its accuracy after every step on the held-out images."""

    method: Method
    v0: float
    accuracy: tuple[float, ...]

    @property
    def settings(self) -> dict[str, Any]:
        return {"method": self.method.to_json(), "v0": self.v0}

    @property
    def name(self) -> str:
        settings = self.method.to_json()
        kind = {
            "omega": f"Ω = {settings.get('omega')}",
            "latency": f"λ = {settings.get('lam')}",
            "scaled": f"p = {settings.get('factor')}",
        }
        return f"{kind.get(self.method.label, self.method.label)}, v(0) = {self.v0:g} θ"


@dataclass(frozen=True)
class Sweep:
    """What was found. `front` are the points that no other setting beats in both accuracy and steps."""

    best: Conversion
    chosen: Candidate
    steps: int  # at which the chosen one is, and stays, within the loss
    ann_accuracy: float
    candidates: tuple[Candidate, ...]

    @property
    def front(self) -> list[dict[str, Any]]:
        """The `front` entry of a record: rising accuracy over rising steps."""
        points: list[dict[str, Any]] = []
        best = -1.0
        for step in range(len(self.chosen.accuracy)):
            leader = max(self.candidates, key=lambda c: c.accuracy[step])
            if leader.accuracy[step] > best:
                best = leader.accuracy[step]
                points.append(
                    {
                        "name": leader.name,
                        "steps": step + 1,
                        "accuracy": best,
                        "loss": self.ann_accuracy - best,
                        "settings": leader.settings,
                    }
                )
        return points

    def __str__(self) -> str:
        lines = [f"within the loss after {self.steps} steps: {self.chosen.name}", "front (steps, accuracy, setting):"]
        lines += [f"  {p['steps']:>4}  {100 * p['accuracy']:6.2f} %  {p['name']}" for p in self.front]
        return "\n".join(lines)


def candidates(graph: Graph) -> list[Method]:
    """Factors on the maxima, trained p' for each layer, and the network's own thresholds where it has some."""
    methods: list[Method] = [Scaled(MaxNorm(), factor) for factor in FACTORS]
    methods += [EqualOmega(omega) for omega in OMEGAS]
    methods += [Latency(lam, per_layer=True) for lam in LAMBDAS]
    try:
        Trained().scales(graph, None)
    except CalibrationError:
        return methods  # plain ReLU somewhere: nothing was trained
    return [Trained(), *methods]


def fastest(
    analog: Graph,
    report: SupportReport,
    calibration: Calibration,
    held_out: Tensor,
    labels: Tensor | None,
    max_loss: float,
    steps: int = 128,
    engine: EngineName = "auto",
    folder: RunFolder | None = None,
) -> Sweep:
    """The conversion that comes, and stays, within `max_loss` points of the ANN in the fewest steps.

    Without labels the loss is counted in answers that differ from the ANN's. The images must not be those of the
    calibration, nor of the test. In a folder every finished setting is kept, and a sweep that was stopped goes on with
    the next one; `max_loss` only chooses among them, so another one costs nothing.
    """
    check_loss(max_loss)
    with torch.no_grad():
        ann = run(analog, held_out).argmax(-1)
    truth = ann if labels is None else labels
    kept = Finished(folder, analog, calibration, report)
    scales: dict[Method, dict[str, SiteScale]] = {}
    tried: list[Candidate] = []
    for method in tqdm(candidates(analog), desc="sweep", unit="method", dynamic_ncols=True, disable=not world().writer):
        scales[method] = kept.scales(method)
        for v0 in STARTS:
            accuracy = kept.accuracy(scales[method], v0, held_out, truth, steps, engine)
            tried.append(Candidate(method, v0, accuracy))
    ann_accuracy = float((ann == truth).double().mean())
    at, chosen = _first_within(tried, ann_accuracy, max_loss, steps)
    found = scales[chosen.method]
    best = Conversion(kept.net(found, chosen.v0), analog, found, chosen.method, chosen.v0, report)
    return Sweep(best, chosen, at, ann_accuracy, tuple(tried))


def check_loss(max_loss: float) -> None:
    """Refuse a loss that no network can be within."""
    if not max_loss >= 0:  # NaN too
        raise UsageError(f"Sweeping: --max-loss is {max_loss}; it is a number of points and must not be negative.")


def _first_within(tried: list[Candidate], ann_accuracy: float, max_loss: float, steps: int) -> tuple[int, Candidate]:
    """Who arrives first, and at which step; of several the one that was tried first."""
    arrived = [
        (at, i) for i, c in enumerate(tried) if (at := steps_to(c.accuracy, ann_accuracy - max_loss / 100)) is not None
    ]
    if not arrived:
        best = max(c.accuracy[-1] for c in tried)
        raise CalibrationError(
            f"Sweeping: no setting comes within {max_loss} points of the ANN's {100 * ann_accuracy:.2f} % in {steps} "
            f"steps; the best reaches {100 * best:.2f} %. Allow more steps or more loss."
        )
    at, index = min(arrived)
    return at, tried[index]
