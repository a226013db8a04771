"""`ratenorm reproduce`: train what is missing, resume what was cut, evaluate, and write one record a network
and seed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ratenorm import records
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import convert_graph
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.convert.thresholds import Trained, parse
from ratenorm.data import ImageSet
from ratenorm.experiments.calibration import calibration_images
from ratenorm.experiments.choosing import Rule, choose_stage2
from ratenorm.experiments.evaluation import watched_evaluation
from ratenorm.experiments.paper import numbers_for
from ratenorm.experiments.presets import BASELINES, OUR_WEIGHTS, Preset
from ratenorm.experiments.record import ann_entry, make_record, run_entry, scale_of
from ratenorm.experiments.remember import remembered
from ratenorm.experiments.training import (
    STAGE1_FILE,
    STAGE2_FILE,
    DataConfig,
    TrainConfig,
    at_p_one,
    test_accuracy,
    train_network,
)
from ratenorm.export.network import NetworkSpec, load_network
from ratenorm.runs import METRICS, RunFolder, go_on

CALIBRATION = 1000
K_IMAGES = 200  # test images on which K and Omega are measured: every neuron at every step


@dataclass(frozen=True)
class Scale:
    """How much of an experiment to run: all of it, or a short run that proves the preset on a subset."""

    train_images: int | None = None
    test_images: int | None = None
    epochs: int | None = None
    steps: int | None = None

    @property
    def full(self) -> bool:
        return self == Scale()

    @property
    def calibration(self) -> int:
        """Training images that the methods without training look at."""
        return min(CALIBRATION, self.test_images or CALIBRATION)

    def of(self, preset: Preset) -> Preset:
        if self.full:
            return preset
        epochs = preset.relu.epochs if self.epochs is None else self.epochs
        tune = preset.rnl.epochs if self.epochs is None else min(self.epochs, preset.rnl.epochs)
        holdout = preset.relu.holdout if self.train_images is None else max(50, self.train_images // 10)
        return replace(
            preset,
            relu=replace(preset.relu, epochs=epochs, holdout=holdout),
            rnl=replace(preset.rnl, epochs=tune, holdout=holdout),
            ril=replace(preset.ril, holdout=holdout, images=self.train_images or preset.ril.images),
            steps=self.steps or preset.steps,
        )

    def __str__(self) -> str:
        if self.full:
            return "full"
        cut = [f"{v:,} {k.replace('_', ' ')}" for k, v in vars(self).items() if v is not None]
        return f"reduced: {', '.join(cut)}"


RULE = Rule()  # by which lambda is chosen
SHORT = Scale(train_images=2000, test_images=200, epochs=1, steps=64)


@dataclass(frozen=True)
class Place:
    """Where the parts of one network and seed lie."""

    path: Path

    @property
    def relu(self) -> Path:
        """The network trained with ReLU."""
        return self.path / "relu" / STAGE1_FILE

    @property
    def rnl(self) -> Path:
        """The network with Rate Norm layers at p = 1."""
        return self.path / "rnl" / STAGE1_FILE

    @property
    def ril(self) -> Path:
        """The same with the p that stage 2 found, for the chosen lambda."""
        return self.path / "ril" / STAGE2_FILE


def place_of(preset: Preset, seed: int, work: Path, scale: Scale) -> Place:
    return Place(work / label(preset, seed, scale))


def label(preset: Preset, seed: int, scale: Scale) -> str:
    """The name of a record and of its folder."""
    return f"{preset.name}-s{seed}{'' if scale.full else '-short'}"


def reproduce(
    preset: Preset, seed: int, work: Path, results: Path, scale: Scale, root: str | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """One network and seed, from training to its record in `results`. Interrupted anywhere it goes on where it was."""
    began = time.monotonic()
    preset = scale.of(preset)
    place = place_of(preset, seed, work, scale)
    say(f"{preset.name}, seed {seed}: {scale}; work in {place.path}")
    choice = train_all(preset, seed, place, scale, root, say)
    with go_on(place.path / "spiking") as folder:
        networks = {file.parent.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (place.relu, place.ril)}
        folder.configure({"networks": networks, "steps": preset.steps, "seed": seed, "scale": str(scale)})
        record = _evaluate(preset, seed, place, folder, scale, root)
    record |= {"choice": choice, "seconds": time.monotonic() - began}
    record["config"]["training_seconds"] = {part: trained_seconds(place.path / part) for part in ("relu", "rnl")}
    records.write(results / f"{label(preset, seed, scale)}.json", record)
    return record


def train_all(
    preset: Preset, seed: int, place: Place, scale: Scale, root: str | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """The ReLU network, its continuation with Rate Norm layers, and stage 2 for every lambda tried; returns the
    choice."""
    _train(_training(preset, seed, scale, root, None), place.relu.parent)
    rnl = _training(preset, seed, scale, root, place.relu)
    _train(rnl, place.rnl.parent)
    first, *others = preset.stage2_candidates(seed)
    rule = replace(RULE, steps=min(RULE.steps, preset.steps))
    ready = {first: place.rnl.with_name(STAGE2_FILE)}
    return choose_stage2(place.rnl, rnl, [first, *others], ready, place.ril.parent, rule, say)


def _training(preset: Preset, seed: int, scale: Scale, root: str | None, start: Path | None) -> TrainConfig:
    """With ReLU, or, from the network in `start`, with Rate Norm in both stages."""
    return TrainConfig(
        preset.model,
        "relu" if start is None else "rate_norm",
        DataConfig(preset.data, root),
        replace(preset.relu if start is None else preset.rnl, seed=seed),
        None if start is None else replace(preset.ril, seed=seed),
        None if start is None else str(start),
        scale.train_images,
    )


def _train(config: TrainConfig, path: Path) -> None:
    with go_on(path) as folder:
        folder.configure(config.to_json())
        train_network(config, folder)


def _evaluate(
    preset: Preset, seed: int, place: Place, folder: RunFolder, scale: Scale, root: str | None
) -> dict[str, Any]:
    relu, spec = load_network(place.relu)
    ours, _ = load_network(place.ril)
    stage1 = at_p_one(place.ril)
    available = DataConfig(preset.data, root).test()
    test = available if scale.test_images is None else available.subset(range(scale.test_images))
    images = Calibration(calibration_images(DataConfig(preset.data, root), spec, scale.calibration, seed))
    jobs: list[tuple[str, nn.Module, str, float]] = []
    for v0, start in ((0.0, ""), (0.5, ", v(0) = θ/2")):
        jobs += [(f"RNL{start}", stage1, "trained", v0), (f"RNL + RIL{start}", ours, "trained", v0)]
    jobs += [(name, relu, method, 0.0) for method, name in BASELINES.items()]
    jobs += [(f"{name}{OUR_WEIGHTS}", stage1, method, 0.0) for method, name in BASELINES.items()]
    runs = [_run(job, preset, spec, test, images, folder) for job in jobs]
    graph, _ = lower(stage1, torch.zeros(1, *spec.input_shape))
    accuracies = {"relu_ann": test_accuracy(relu, spec, test), "rnl_ann": test_accuracy(stage1, spec, test)}
    return make_record(
        "reproduce",
        f"{preset.model} on {preset.data}, seed {seed} ({preset.where})",
        {"preset": preset.to_json(), **accuracies},
        seed=seed,
        seconds=0.0,
        data={"name": test.name, "split": "test", "images": len(test), "classes": list(test.classes)},
        ann=ann_entry(preset.model, fold(graph), accuracies["rnl_ann"], None),
        runs=runs,
        scale=str(scale) if not scale.full else scale_of(len(test), len(available), "test images"),
        paper=numbers_for(preset.data, preset.model) or None,
    )


def _run(
    job: tuple[str, nn.Module, str, float],
    preset: Preset,
    spec: NetworkSpec,
    test: ImageSet,
    images: Calibration,
    folder: RunFolder,
) -> dict[str, Any]:
    name, model, text, v0 = job

    def work() -> dict[str, Any]:
        method = Trained() if text == "trained" else parse(text)
        graph, report = lower(model, torch.zeros(1, *spec.input_shape))
        net = convert_graph(fold(graph), method, images, v0, report).net
        result = watched_evaluation(
            name, net, test, spec, preset.steps, "auto", fit_images=200, batch_size=100, folder=folder
        )
        return run_entry(name, preset.model, net, method, v0, result)

    return remembered(folder, name, work)


def trained_seconds(folder: Path) -> float:
    """How long a training took, over all the sessions it was cut into."""
    seconds: dict[str, float] = {}
    for line in (folder / METRICS).read_bytes().splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a damaged line: the next one tells as much
            entry = json.loads(line)
            seconds[entry["stage"]] = float(entry["seconds"])
    return sum(seconds.values())
