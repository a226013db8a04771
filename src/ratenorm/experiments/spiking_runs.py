"""What is simulated of a reproduced network: ours; every method the paper compares with, on the ReLU network; those of
Table 2 on our weights as well.

The runs that the headline and the paper's tables rest on come first. Those of the tables go on to the last step, and
so does our second Table 2; the others stop at T = 256. Two methods that end in the same spiking network, weight for
weight, are simulated once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import convert_graph
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.convert.thresholds import Trained, parse
from ratenorm.data import ImageSet
from ratenorm.experiments import fingerprint
from ratenorm.experiments.evaluation import watched_evaluation
from ratenorm.experiments.presets import BASELINES, IN_TABLE_2, OUR_WEIGHTS
from ratenorm.experiments.record import run_entry
from ratenorm.experiments.remember import remembered
from ratenorm.export.network import NetworkSpec
from ratenorm.files import to_json
from ratenorm.runs import RunFolder

SIDE_STEPS = 256  # of the runs that are in neither Table 2
K_IMAGES = 200  # test images on which K and Omega are measured: every neuron at every step
BATCH = 100

Which = Literal["relu", "rnl", "ril"]
Known = Mapping[tuple[str, float, int, str], dict[str, Any]]  # finished runs, by method, v(0), steps and weights


@dataclass(frozen=True)
class Job:
    """One run: a method on one of the networks."""

    name: str
    network: Which
    method: str  # as on the command line
    v0: float
    steps: int


def jobs(steps: int) -> list[Job]:
    """In the order in which they matter: ours and Max Norm are the headline."""
    side = min(steps, SIDE_STEPS)
    methods = {name: method for method, name in BASELINES.items()}
    ours, before = Job("RNL + RIL", "ril", "trained", 0.0, steps), Job("RNL", "rnl", "trained", 0.0, steps)
    half = [
        Job("RNL + RIL, v(0) = θ/2", "ril", "trained", 0.5, side),
        Job("RNL, v(0) = θ/2", "rnl", "trained", 0.5, side),
    ]
    slow, *first = [Job(name, "relu", methods[name], 0.0, steps) for name in IN_TABLE_2]  # slow: Max Norm
    second = [Job(f"{name}{OUR_WEIGHTS}", "rnl", methods[name], 0.0, steps) for name in IN_TABLE_2]
    others = [Job(name, "relu", method, 0.0, side) for name, method in methods.items() if name not in IN_TABLE_2]
    return [ours, slow, before, half[0], *first, *others, half[1], *second]


def simulate_all(
    networks: dict[Which, nn.Module],
    spec: NetworkSpec,
    test: ImageSet,
    images: Calibration,
    steps: int,
    folder: RunFolder,
    keep: Callable[[list[dict[str, Any]], int], None],
    known: Known | None = None,
) -> None:
    """Every job in turn; `keep` gets the runs so far and how many there will be, before each one that takes time (none
    before the first: the ANN is known) and at the end. What was finished, in this folder or in `known`, is not
    repeated, and is handed over at once: a complete record stays complete."""
    todo, runs = jobs(steps), list[dict[str, Any]]()

    def keep_up() -> None:
        keep(runs, len(todo))

    for job in todo:
        runs.append(_run(job, networks[job.network], spec, test, images, folder, keep_up, known or {}))
    keep_up()


def _run(
    job: Job,
    model: nn.Module,
    spec: NetworkSpec,
    test: ImageSet,
    images: Calibration,
    folder: RunFolder,
    before: Callable[[], None],
    known: Known,
) -> dict[str, Any]:
    method = Trained() if job.method == "trained" else parse(job.method)
    seen = {"images": [test.name, len(test)], "steps": job.steps}

    def converted() -> dict[str, Any]:
        before()
        graph, report = lower(model, torch.zeros(1, *spec.input_shape))
        net = convert_graph(fold(graph), method, images, job.v0, report).net

        def simulated() -> dict[str, Any]:
            options: dict[str, Any] = {"fit_images": K_IMAGES, "batch_size": BATCH, "folder": folder}
            result = watched_evaluation(job.name, net, test, spec, job.steps, "auto", **options)
            return run_entry(job.name, spec.model, net, method, job.v0, result)

        return remembered(folder, to_json({"net": fingerprint.of_graph(net), **seen}), simulated)

    # Named by the weights as well, so that another choice of lambda is never answered with old figures.
    weights = fingerprint.of_weights(model)
    name = to_json({"job": vars(job), "weights": weights, **seen})
    earlier = known.get((job.method, job.v0, job.steps, weights))
    found = remembered(folder, name, lambda: earlier or converted())
    papers = [*method.papers, *(["bu2022"] if job.v0 == 0.5 else [])]
    return {**found, "name": job.name, "method": method.to_json(), "papers": papers}
