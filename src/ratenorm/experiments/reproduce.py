"""`ratenorm reproduce`: train what is missing, resume what was cut, evaluate, and write one record a network
and seed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ratenorm import records
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.errors import FileFormatError
from ratenorm.experiments import fingerprint
from ratenorm.experiments.calibration import calibration_images
from ratenorm.experiments.choosing import Rule, choose_stage2
from ratenorm.experiments.from_zoo import has, take_rate_norm, take_relu
from ratenorm.experiments.paper import numbers_for
from ratenorm.experiments.presets import Preset
from ratenorm.experiments.record import ann_entry, make_record, scale_of, scale_of_part
from ratenorm.experiments.spiking_runs import Known, Which, jobs, simulate_all
from ratenorm.experiments.training import (
    STAGE1_FILE,
    STAGE2_FILE,
    DataConfig,
    TrainConfig,
    at_p_one,
    test_accuracy,
    train_network,
)
from ratenorm.export.network import load_network
from ratenorm.files import is_sealed, opened_line, sweep_of, to_json
from ratenorm.runs import CONFIG, METRICS, RunFolder, go_on

CALIBRATION = 1000
SOURCE = "from_relu_sha256"


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
            lams=preset.lams[:1],  # that there is a choice is proof enough
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
    preset: Preset,
    seed: int,
    work: Path,
    results: Path,
    scale: Scale,
    root: str | None,
    say: Callable[[str], None],
    zoo: Path | None = None,
) -> dict[str, Any]:
    """One network and seed, from training to its record in `results`. Interrupted anywhere it goes on where it was;
    what lies in `zoo` is not trained again."""
    preset = scale.of(preset)
    place = place_of(preset, seed, work, scale)
    say(f"{preset.name}, seed {seed}: {scale}; work in {place.path}")
    choice = train_all(preset, seed, place, scale, root, zoo, say)
    found: dict[str, Any] = {"choice": choice, "paper": numbers_for(preset.data, preset.model) or None}
    trained = {part: trained_seconds(place.path / part) for part in ("relu", "rnl")}
    path, record = results / f"{label(preset, seed, scale)}.json", {}

    def keep(head: dict[str, Any], runs: list[dict[str, Any]], todo: int) -> None:
        """What is done can be looked at already; it says that it is not all."""
        part = {} if len(runs) == todo else {"scale": scale_of_part(len(runs), todo, head["scale"])}
        seconds = sum(trained.values()) + sum(
            head["data"]["images"] / (run["images_per_second"] or math.inf) for run in runs
        )
        record.update(make_record(**{**head, **part}, runs=runs, seconds=seconds, **found))
        record["config"]["training_seconds"] = trained
        records.write(path, record)

    with go_on(place.path / "spiking") as folder:
        sweep_of(path)  # whoever holds this folder is the only one to write that record
        folder.configure({"preset": preset.name, "seed": seed, "scale": str(scale)})
        _simulate(preset, seed, place, folder, scale, root, path, keep)
    return record


def train_all(
    preset: Preset,
    seed: int,
    place: Place,
    scale: Scale,
    root: str | None,
    zoo: Path | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """The ReLU network, its continuation with Rate Norm layers, and stage 2 for every lambda tried; returns the
    choice."""
    train_relu(preset, seed, place, scale, root, zoo, say)
    name = zoo_name(preset, seed, scale)
    rnl = _training(preset, seed, scale, root, place.relu)
    wanted = _as_begun(place.rnl.parent, rnl)
    if zoo is not None and take_rate_norm(name, zoo, wanted, place.rnl, place.ril):
        say(f"  the zoo has {name}: not trained again")
    _train(rnl, place.rnl.parent)
    rule = replace(RULE, steps=min(RULE.steps, preset.steps))
    return choose_stage2(place.rnl, rnl, preset.stage2_candidates(seed), place.ril.parent, rule, say)


def train_relu(
    preset: Preset,
    seed: int,
    place: Place,
    scale: Scale,
    root: str | None,
    zoo: Path | None,
    say: Callable[[str], None],
) -> None:
    """The ReLU network alone."""
    name, config = f"{zoo_name(preset, seed, scale)}-relu", _training(preset, seed, scale, root, None)
    if zoo is not None and take_relu(name, zoo, config.to_json(), place.relu):
        say(f"  the zoo has {name}: not trained again")
    _train(config, place.relu.parent)


def relu_in_zoo(preset: Preset, seed: int, scale: Scale, zoo: Path) -> bool:
    config = _training(preset, seed, scale, None, None)
    return has(f"{zoo_name(preset, seed, scale)}-relu", zoo, config.to_json())


def in_zoo(preset: Preset, seed: int, scale: Scale, zoo: Path) -> bool:
    """Nothing of it has to be trained: the zoo has the ReLU network, and the one that went on from it."""
    name = zoo_name(preset, seed, scale)
    if not relu_in_zoo(preset, seed, scale, zoo):
        return False
    rnl = _training(preset, seed, scale, None, zoo / f"{name}-relu.safetensors")
    return has(name, zoo, _as_begun(zoo / name, rnl))


def zoo_name(preset: Preset, seed: int, scale: Scale) -> str:
    """Of the network with Rate Norm layers; the one with ReLU has `-relu` behind it."""
    return preset.name if scale.full and seed == 0 else label(preset, seed, scale)


def _training(preset: Preset, seed: int, scale: Scale, root: str | None, start: Path | None) -> TrainConfig:
    """Stage 1 with ReLU, or, from the network in `start`, with Rate Norm."""
    return TrainConfig(
        preset.model,
        "relu" if start is None else "rate_norm",
        DataConfig(preset.data, root),
        replace(preset.relu if start is None else preset.rnl, seed=seed),
        None,
        None if start is None else str(start),
        scale.train_images,
        omega=None if start is None else preset.omega,
        half=True,
    )


def _train(config: TrainConfig, path: Path) -> None:
    with go_on(path) as folder:
        folder.configure(_as_begun(path, config))
        train_network(config, folder)


def _as_begun(path: Path, config: TrainConfig) -> dict[str, Any]:
    """The configuration with the paths of when the training began: folders and data may have been moved since. The
    network to start from is known by its content; trainings begun before that was kept are taken at their word.
    """
    own = json.loads(to_json(config.to_json()))
    begun: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, TypeError):
        begun = dict(json.loads((path / CONFIG).read_text(encoding="utf-8")))
    with contextlib.suppress(TypeError, KeyError):
        own["data"]["root"] = begun["data"]["root"]
    if config.from_relu is None:
        return dict(own)
    with contextlib.suppress(TypeError, KeyError):
        if Path(begun["from_relu"]).parts[-2:] == Path(config.from_relu).parts[-2:]:
            own["from_relu"] = begun["from_relu"]
    if not begun or SOURCE in begun:
        own[SOURCE] = hashlib.sha256(Path(config.from_relu).read_bytes()).hexdigest()
    return dict(own)


def _simulate(
    preset: Preset,
    seed: int,
    place: Place,
    folder: RunFolder,
    scale: Scale,
    root: str | None,
    path: Path,
    keep: Callable[[dict[str, Any], list[dict[str, Any]], int], None],
) -> None:
    data = DataConfig(preset.data, root)
    relu, spec = load_network(place.relu)
    ours, _ = load_network(place.ril)
    stage1 = at_p_one(place.ril)
    available = data.test()
    test = available if scale.test_images is None else available.subset(range(scale.test_images))
    images = Calibration(calibration_images(data, spec, scale.calibration, seed))
    graph, _ = lower(stage1, torch.zeros(1, *spec.input_shape))
    networks: dict[Which, nn.Module] = {"relu": relu, "rnl": stage1, "ril": ours}
    weights = {which: fingerprint.of_weights(network) for which, network in networks.items()}
    accuracies = {"relu_ann": test_accuracy(relu, spec, test), "rnl_ann": test_accuracy(stage1, spec, test)}
    head = {
        "kind": "reproduce",
        "title": f"{preset.model} on {preset.data}, seed {seed} ({preset.where})",
        "config": {"preset": preset.to_json(), "weights": weights, **accuracies},
        "seed": seed,
        "data": {"name": test.name, "split": "test", "images": len(test), "classes": list(test.classes)},
        "ann": ann_entry(preset.model, fold(graph), accuracies["rnl_ann"], None),
        "scale": str(scale) if not scale.full else scale_of(len(test), len(available), "test images"),
    }
    known = _known(path, len(test), preset.steps)
    simulate_all(networks, spec, test, images, preset.steps, folder, partial(keep, head), known)


def _known(path: Path, images: int, steps: int) -> Known:
    """The runs of an earlier record, by name and weights: a record lives longer than the folder it was made in."""
    if not path.exists():
        return {}
    try:
        record = records.read(path)
    except FileFormatError:
        return {}  # damaged: it will be written anew
    weights = record["config"].get("weights")
    if not isinstance(weights, dict) or record["data"]["images"] != images:
        return {}
    runs = {run["name"]: run for run in record["runs"]}
    same = [job for job in jobs(steps) if job.name in runs and runs[job.name]["steps"] == job.steps]
    return {(job.name, str(weights.get(job.network))): runs[job.name] for job in same}


def trained_seconds(folder: Path) -> float:
    """How long a training took, over all the sessions it was cut into."""
    seconds: dict[str, float] = {}
    for line in (folder / METRICS).read_bytes().splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a damaged line: the next one tells as much
            entry = opened_line(line, is_sealed(line))
            seconds[entry["stage"]] = float(entry["seconds"])
    return sum(seconds.values())
