"""The fastest network within a given loss: sweep lambda, p and the start potential on held-out images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import Conversion, convert_graph, with_start
from ratenorm.convert.support import SupportReport
from ratenorm.convert.thresholds import Latency, MaxNorm, Method, Scaled, Trained
from ratenorm.core.energy import steps_to
from ratenorm.engines.simulate import EngineName, simulate
from ratenorm.errors import CalibrationError, UsageError
from ratenorm.graph.net import Graph, run

FACTORS = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2)  # p on the maxima
LAMBDAS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of trained p', one a layer
STARTS = (0.0, 0.5)


@dataclass(frozen=True)
class Candidate:
    """One setting and its accuracy after every step on the held-out images."""

    method: Method
    v0: float
    accuracy: tuple[float, ...]

    @property
    def name(self) -> str:
        settings = self.method.to_json()
        kind = {"latency": f"λ = {settings.get('lam')}", "scaled": f"p = {settings.get('factor')}"}
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
                        "settings": {"method": leader.method.to_json(), "v0": leader.v0},
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
) -> Sweep:
    """The conversion that comes, and stays, within `max_loss` points of the ANN in the fewest steps.

    Without labels the loss is counted in answers that differ from the ANN's. The images must not be those of the
    calibration, nor of the test.
    """
    if max_loss < 0:
        raise UsageError(f"Sweeping: --max-loss is {max_loss}; it is a number of points and must not be negative.")
    with torch.no_grad():
        ann = run(analog, held_out).argmax(-1)
    truth = ann if labels is None else labels
    ann_accuracy = float((ann == truth).double().mean())
    tried: list[tuple[Candidate, Conversion]] = []
    for method in tqdm(candidates(analog), desc="sweep", unit="method", dynamic_ncols=True):
        floored = convert_graph(analog, method, calibration, 0.0, report)
        for v0 in STARTS:
            conversion = replace(floored, net=with_start(floored.net, v0), v0=v0)
            logits = simulate(conversion.net, held_out, steps, engine=engine).logits
            accuracy = (logits.argmax(-1).cpu() == truth).double().mean(1).tolist()
            tried.append((Candidate(method, v0, tuple(accuracy)), conversion))
    arrived = [
        (at, i)
        for i, (c, _) in enumerate(tried)
        if (at := steps_to(c.accuracy, ann_accuracy - max_loss / 100)) is not None
    ]
    if not arrived:
        best = max(c.accuracy[-1] for c, _ in tried)
        raise CalibrationError(
            f"Sweeping: no setting comes within {max_loss} points of the ANN's {100 * ann_accuracy:.2f} % in {steps} "
            f"steps; the best reaches {100 * best:.2f} %. Allow more steps or more loss."
        )
    at, index = min(arrived)
    chosen, conversion = tried[index]
    return Sweep(conversion, chosen, at, ann_accuracy, tuple(c for c, _ in tried))
