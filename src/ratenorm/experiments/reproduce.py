"""`ratenorm reproduce`: train what is missing, resume what was cut, evaluate, and write one record a network
and seed.
"""

from __future__ import annotations

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
from ratenorm.experiments.evaluation import watched_evaluation
from ratenorm.experiments.paper import numbers_for
from ratenorm.experiments.presets import BASELINES, Preset
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
from ratenorm.runs import RunFolder


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


SHORT = Scale(train_images=2000, test_images=200, epochs=1, steps=64)


def reproduce(
    preset: Preset, seed: int, work: Path, results: Path, scale: Scale, root: str | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """One network and seed, from training to its record in `results`. Interrupted anywhere it goes on where it was."""
    began = time.monotonic()
    preset = scale.of(preset)
    place = work / f"{preset.name}-s{seed}{'' if scale.full else '-short'}"
    say(f"{preset.name}, seed {seed}: {scale}; work in {place}")
    relu_file = _train(preset, seed, place / "relu", scale, root, None)
    rnl_folder = place / "rnl"
    _train(preset, seed, rnl_folder, scale, root, relu_file)
    with _open(place / "evaluation") as folder:
        folder.configure({"preset": preset.to_json(), "seed": seed, "scale": str(scale)})
        record = _evaluate(preset, seed, relu_file, rnl_folder, folder, scale, root, began)
    records.write(results / f"{preset.name}-s{seed}{'' if scale.full else '-short'}.json", record)
    return record


def _open(path: Path) -> RunFolder:
    """Resume what is there, start what is not."""
    used = path.is_dir() and any(path.iterdir())
    return RunFolder(path, "resume" if used else "new")


def _train(preset: Preset, seed: int, path: Path, scale: Scale, root: str | None, start: Path | None) -> Path:
    """Train with ReLU, or, from `start`, with Rate Norm in both stages; returns the file of stage 1."""
    stage1 = replace(preset.relu if start is None else preset.rnl, seed=seed)
    config = TrainConfig(
        preset.model,
        "relu" if start is None else "rate_norm",
        DataConfig(preset.data, root),
        stage1,
        None if start is None else replace(preset.ril, seed=seed),
        None if start is None else str(start),
        scale.train_images,
    )
    with _open(path) as folder:
        folder.configure(config.to_json())
        train_network(config, folder)
    return path / STAGE1_FILE


def _evaluate(
    preset: Preset,
    seed: int,
    relu_file: Path,
    rnl: Path,
    folder: RunFolder,
    scale: Scale,
    root: str | None,
    began: float,
) -> dict[str, Any]:
    relu, spec = load_network(relu_file)
    ours, _ = load_network(rnl / STAGE2_FILE)
    stage1 = at_p_one(rnl / STAGE2_FILE)
    available = DataConfig(preset.data, root).test()
    test = available if scale.test_images is None else available.subset(range(scale.test_images))
    images = Calibration(calibration_images(DataConfig(preset.data, root), spec, 1000, seed))
    jobs: list[tuple[str, nn.Module, str, float]] = []
    for v0, start in ((0.0, ""), (0.5, ", v(0) = θ/2")):
        jobs += [(f"RNL{start}", stage1, "trained", v0), (f"RNL + RIL{start}", ours, "trained", v0)]
    jobs += [(name, relu, method, 0.0) for method, name in BASELINES.items()]
    jobs += [(f"{name}, our weights", stage1, method, 0.0) for method, name in BASELINES.items()]
    runs = [_run(job, preset, spec, test, images, folder) for job in jobs]
    graph, _ = lower(stage1, torch.zeros(1, *spec.input_shape))
    accuracies = {"relu_ann": test_accuracy(relu, spec, test), "rnl_ann": test_accuracy(stage1, spec, test)}
    return make_record(
        "reproduce",
        f"{preset.model} on {preset.data}, seed {seed} ({preset.where})",
        {"preset": preset.to_json(), **accuracies},
        seed=seed,
        seconds=time.monotonic() - began,
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
        result = watched_evaluation(name, net, test, spec, preset.steps, "auto", fit_images=200, batch_size=100)
        return run_entry(name, preset.model, net, method, v0, result)

    return remembered(folder, name, work)
