"""What is simulated of a reproduced network: ours; every method the paper compares with, on the ReLU network; those of
Table 2 on our weights as well.

The runs that the headline and the paper's tables rest on come first. Those of the tables go on to the last step, and
so do our second Table 2 and what ends in a network of these; the others stop at T = 256. Two methods that end in the
same spiking network, weight for weight, are simulated once. All methods run on some of the images first: there is a
comparison early, and it says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from paper.presets import BASELINES, IN_TABLE_2, OUR_WEIGHTS
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import convert_graph
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.convert.thresholds import Method, Trained, parse
from ratenorm.data import ImageSet
from ratenorm.graph.net import SpikingNet
from ratenorm.io.files import to_json
from ratenorm.io.networks import NetworkSpec
from ratenorm.io.run_folder import RunFolder
from ratenorm.workflows import fingerprint
from ratenorm.workflows.environment import hardware
from ratenorm.workflows.evaluate import watched_evaluation
from ratenorm.workflows.record import run_entry
from ratenorm.workflows.resume import recalled, remembered
from ratenorm.workflows.train import test_accuracy

SIDE_STEPS = 256  # of the runs that are in neither Table 2
FIRST_IMAGES = 1000  # of the test set: all methods run on these before any goes on to the rest
AS_MAX = ("max", "data")  # Diehl's data-based norm mostly ends in the network of Max Norm: then one run serves both
QUICK = ("trained", *AS_MAX)  # whose conversion takes seconds
K_IMAGES = 200  # test images on which K and Omega are measured: every neuron at every step
BATCH = 100
SOURCES: dict[str, str] = {"relu": "with ReLU", "rnl": "with Rate Norm"}  # in words

Which = Literal["relu", "rnl", "ril"]
RunKey = tuple[str, float, int, str, int]  # method, v(0), steps, weights, number of images
Known = Mapping[RunKey, dict[str, Any]]  # finished runs


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
    rest = {name: method for name, method in methods.items() if name not in IN_TABLE_2}
    others = [Job(name, "relu", method, 0.0, steps if method in AS_MAX else side) for name, method in rest.items()]
    return [ours, slow, before, half[0], *first, *others, half[1], *second]


@dataclass(frozen=True)
class Bench:
    """What all runs of a network share."""

    networks: Mapping[Which, nn.Module]
    spec: NetworkSpec
    test: ImageSet
    calibration: Calibration
    folder: RunFolder
    lasting: Path | None = None  # where the sums of all images are kept meanwhile: they may take hours
    known: Known = field(default_factory=dict)
    accuracies: Mapping[str, float] = field(default_factory=dict)  # of the networks before conversion, on all images

    @cached_property
    def weights(self) -> dict[Which, str]:
        return {which: fingerprint.of_weights(model) for which, model in self.networks.items()}

    def seen(self, job: Job, images: int) -> dict[str, Any]:
        return {"images": [self.test.name, images], "steps": job.steps}

    def name(self, job: Job, images: int) -> str:
        """By the weights as well, so that another choice of lambda is never answered with old figures."""
        return to_json({"job": vars(job), "weights": self.weights[job.network], **self.seen(job, images)})

    def name_of_net(self, net: SpikingNet, job: Job, images: int) -> str:
        """By the spiking network itself: other jobs may end in the same one."""
        return to_json({"net": fingerprint.of_graph(net), **self.seen(job, images)})

    def convert(self, job: Job) -> SpikingNet:
        graph, report = lower(self.networks[job.network], torch.zeros(1, *self.spec.input_shape))
        return convert_graph(fold(graph), _method(job), self.calibration, job.v0, report).net


def simulate_all(
    bench: Bench,
    steps: int,
    keep: Callable[[list[dict[str, Any]], int], None],
    whole: Collection[str] | None = None,
) -> None:
    """Every job on the first images, so that all methods can be compared early; then those named in `whole` (None:
    every job) on all images. `keep` gets the runs so far and how many there will be, before each one that takes time
    (none before the first: the ANN is known) and at the end. What was finished, in the folder or in `known`, is not
    repeated, and is handed over at once: a record never has less than it had.
    """
    todo, everything = jobs(steps), len(bench.test)
    few = min(FIRST_IMAGES, everything)
    runs = {job.name: run for job in todo if (run := _finished(bench, job, everything) or _finished(bench, job, few))}
    for job in todo:
        if len(runs) < len(todo) and job.name in runs and job.method in QUICK:
            _note_net(bench, job, runs[job.name])

    def keep_up() -> None:
        keep([runs[job.name] for job in todo if job.name in runs], len(todo))

    for images, wanted in ((few, todo), (everything, [job for job in todo if whole is None or job.name in whole])):
        for job in wanted:
            if job.name not in runs or runs[job.name].get("images", everything) < images:
                keep_up()
                runs[job.name] = _run(bench, job, images)
    keep_up()
    if bench.lasting is not None and all(job.name in runs and "images" not in runs[job.name] for job in todo):
        shutil.rmtree(bench.lasting, ignore_errors=True)  # with the sums of networks that are no more


def _finished(bench: Bench, job: Job, images: int) -> dict[str, Any] | None:
    """The run of a job on so many images, if it was made before."""
    found = recalled(bench.folder, bench.name(job, images))
    if found is None:
        found = bench.known.get((job.method, job.v0, job.steps, bench.weights[job.network], images))
    return None if found is None else _as(bench, job, found)


def _as(bench: Bench, job: Job, found: Mapping[str, Any]) -> dict[str, Any]:
    """A run under the name of a job (that of another may be the same), and the network that its losses are against."""
    method = _method(job)
    papers = [*method.papers, *(["bu2022"] if job.v0 == 0.5 else [])]
    run = {**found, "name": job.name, "method": method.to_json(), "papers": papers}
    if "images" not in run and _source(job) in bench.accuracies:
        run["source_accuracy"] = bench.accuracies[_source(job)]
    if "source_accuracy" in run:
        run["source"] = SOURCES[_source(job)]
    return run


def _source(job: Job) -> Which:
    """The network that a job's losses are taken against: ours at p = 1, whatever p it runs at."""
    return "relu" if job.network == "relu" else "rnl"


def _method(job: Job) -> Method:
    return Trained() if job.method == "trained" else parse(job.method)


def _note_net(bench: Bench, job: Job, run: dict[str, Any]) -> None:
    """A run that is known, from a record perhaps, is known of every job that ends in the same spiking network."""
    own = {key: value for key, value in run.items() if key not in ("images", "source", "source_accuracy")}
    images = run.get("images", len(bench.test))
    remembered(bench.folder, bench.name_of_net(bench.convert(job), job, images), lambda: own)


def _run(bench: Bench, job: Job, images: int) -> dict[str, Any]:
    """A job on so many images, or on all where that is known of the same spiking network."""
    spec, folder, test = bench.spec, bench.folder, bench.test
    part = images < len(test)

    def converted() -> dict[str, Any]:
        net = bench.convert(job)
        if (twin := recalled(folder, bench.name_of_net(net, job, len(test)))) is not None:
            return twin

        def simulated() -> dict[str, Any]:
            options: dict[str, Any] = {"fit_images": K_IMAGES, "batch_size": BATCH, "folder": folder}
            options |= {"first": images if part else None, "lasting": bench.lasting}
            result = watched_evaluation(job.name, net, test, spec, job.steps, "auto", **options)
            return {**run_entry(job.name, spec.model, net, _method(job), job.v0, result), "hardware": hardware()}

        found = remembered(folder, bench.name_of_net(net, job, images), simulated)
        return {**found, **(compared_with() if part else {})}

    def compared_with() -> dict[str, Any]:
        """Of a part of the images: how many, and how the network did on them that the losses are taken against."""
        source = bench.networks[_source(job)]
        return {"images": images, "source_accuracy": test_accuracy(source, spec, test.subset(range(images)))}

    return _as(bench, job, remembered(folder, bench.name(job, images), converted))
