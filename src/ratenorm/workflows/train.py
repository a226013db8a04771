"""Training a network of ours in a run folder: both stages, every file a later step needs, all of it resumable."""

from __future__ import annotations

import math
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ratenorm import records
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.core.energy import steps_to
from ratenorm.core.rate_norm import LARGEST_LEVELS, Output, rate_norm_layers, set_p_
from ratenorm.data import NORMALISATIONS, Batches, ImageSet, measure_normalisation, split_holdout
from ratenorm.distributed import wait_for_all, world
from ratenorm.errors import UsageError
from ratenorm.io.networks import NetworkSpec, load_network, save_network
from ratenorm.io.run_folder import RunFolder
from ratenorm.train.config import Stage1, Stage2
from ratenorm.train.from_relu import start_from_relu_
from ratenorm.train.loop import accuracy, evaluating
from ratenorm.train.stage1 import held_out_count, hold_out, train_accuracy
from ratenorm.train.stage2 import train_latency
from ratenorm.workflows.data import DataConfig, fingerprint_of
from ratenorm.workflows.loud import chance_line
from ratenorm.workflows.record import ann_entry, make_record

STAGE1_FILE, STAGE2_FILE = "stage1.safetensors", "stage2.safetensors"


@dataclass(frozen=True)
class TrainConfig:
    """A whole training. `stage2` None ends after stage 1."""

    model: str = "cnn7"
    activation: str = "rate_norm"
    data: DataConfig = field(default_factory=DataConfig)
    stage1: Stage1 = field(default_factory=Stage1)
    stage2: Stage2 | None = field(default_factory=Stage2)
    from_relu: str | None = None  # a network file trained with ReLU to start from
    images: int | None = None  # train on this many images only: reduced scale
    output: Output = "rate"  # what Rate Norm layers hand on: r^, or z = theta r^ (both stand in Eq. 6)
    omega: float | None = None  # with from_relu: hold the maxima where its layers have this Omega; None: they run
    levels: int | None = None  # quantised Rate Norm layers with so many levels; they have no stage 2
    half: bool = False  # leave networks as float16, as the zoo stores them: what is measured is then what is stored

    def __post_init__(self) -> None:
        """What can be known to be wrong before any folder is written to."""
        if self.levels is not None:
            self._check_levels()
        if self.activation == "relu" and self.stage2 is not None:
            raise UsageError("Training a ReLU network: it has no p for stage 2 to train. Use --no-stage2, or RateNorm.")
        for _, words, value in self.stage1.asked_of_rates():
            if self.activation == "relu" and value is not None:
                raise UsageError(f"Training a ReLU network with {words}: it has no rates to learn. Leave it out.")
        if self.stage1.teacher is not None and self.from_relu is None:
            raise UsageError("Training with --teacher: that is a ReLU network. Give it with --from-relu.")
        if self.omega is None:
            return
        if self.from_relu is None:
            raise UsageError("Training with --omega: it is set on a ReLU network. Give that one with --from-relu.")
        if not 1.0 < self.omega < math.inf:
            raise UsageError(f"Training with --omega {self.omega}: it must be above 1, where all neurons saturate.")

    def _check_levels(self) -> None:
        if self.activation == "relu":
            raise UsageError("Training with levels: a ReLU network has none. Use activation rate_norm.")
        if type(self.levels) is not int or not 1 <= self.levels <= LARGEST_LEVELS:
            raise UsageError(f"Training with levels: {self.levels} is not a whole number from 1 to {LARGEST_LEVELS}.")
        if self.stage2 is not None:
            raise UsageError("Training with levels: p is trained with the weights, so there is no stage 2.")

    def to_json(self) -> dict[str, Any]:
        """Without what was not asked for and is new: trainings of versions that did not have it go on."""
        own = asdict(self) | {"data": self.data.to_json()}
        if own["levels"] is None:
            del own["levels"]
        for later in ("energy", "rest", "steps", "teacher", "settle"):
            if own["stage1"][later] is None:
                del own["stage1"][later]
        return own


@dataclass(frozen=True)
class TrainOutcome:
    """The trained network (p as the last stage left it), its spec, and the held-out accuracy after each stage."""

    model: nn.Module
    spec: NetworkSpec
    stage1_accuracy: float | None
    stage2_accuracy: float | None
    seconds: float
    choice: dict[str, Any] | None = None  # of lambda, where it was chosen


def network_spec(config: TrainConfig, images: ImageSet) -> NetworkSpec:
    """What network the data asks for."""
    channels, height, width = images.image_shape
    if len(images.classes) < 2:
        raise UsageError(
            f"Training on {images.name!r}: it has one class, {images.classes[0]!r}, so there is nothing to tell apart. "
            "Give a folder with one subfolder for each of two or more classes."
        )
    known = NORMALISATIONS.get(images.name)
    normalise = measure_normalisation(images) if known is None else known
    held = held_out_count(config.stage1.holdout, len(images))
    return NetworkSpec(
        config.model,
        config.activation,
        len(images.classes),
        channels,
        (height, width),
        normalise.mean,
        normalise.std,
        images.classes,
        images.name,
        config.levels,
        fingerprint_of(config.data, images),
        (held, config.stage1.seed) if held and config.images is None else None,
    )


def training_images(config: TrainConfig) -> ImageSet:
    """All images a training may see, the held-out ones among them."""
    images = config.data.train()
    if config.images is not None and config.images < len(images):
        return split_holdout(images, config.images, config.stage1.seed)[1]
    return images


def held_out_images(config: TrainConfig, count: int) -> ImageSet:
    """At most `count` training images that no stage has learned from: choices are made on these."""
    _, kept = hold_out(training_images(config), config.stage1.holdout, config.stage1.seed)
    if kept is None:
        raise UsageError("Choosing on held-out images: stage 1 holds none out. Give it a holdout.")
    return kept.subset(range(min(count, len(kept))))


def train_network(config: TrainConfig, folder: RunFolder, show: bool = True, device: str = "cpu") -> TrainOutcome:
    """Train, or go on training, in a folder. A stage whose network file is there is done and is not repeated."""
    began = time.monotonic()
    images = training_images(config)
    spec = network_spec(config, images)
    normalise = spec.normalisation
    torch.manual_seed(config.stage1.seed)
    model = spec.build()
    for _, layer in rate_norm_layers(model):
        layer.output = config.output
    _check_size(model, spec)
    model.to(_own(device))
    stage1_file, stage2_file = folder / STAGE1_FILE, folder / STAGE2_FILE
    first: float | None = None
    second: float | None = None
    choice: dict[str, Any] | None = None
    if stage1_file.exists():
        model, spec = load_network(stage1_file)
        model.to(_own(device))
    else:
        teacher = None
        if config.from_relu is not None:
            relu, _ = load_network(config.from_relu)
            teacher = None if config.stage1.teacher is None else relu
            learned, _ = hold_out(images, config.stage1.holdout, config.stage1.seed)
            some = learned.subset(range(min(2000, len(learned))))
            start_from_relu_(model, relu, Batches(some, 500, normalise=normalise), config.omega)
        first = train_accuracy(
            model, images, config.stage1, normalise=normalise, run=folder, show=show, teacher=teacher
        ).validation_accuracy
        model = _kept(stage1_file, model, spec, config.half)
    if config.stage2 is not None:
        if stage2_file.exists():
            model, spec = load_network(stage2_file)
        else:
            result = train_latency(model, images, config.stage2, normalise=normalise, run=folder, show=show)
            second, choice = result.validation_accuracy, result.choice
            model = _kept(stage2_file, model, spec, config.half)
    return TrainOutcome(model, spec, first, second, time.monotonic() - began, choice)


def _check_size(model: nn.Module, spec: NetworkSpec) -> None:
    """Find out before any work whether the network can take images of this size."""
    try:
        with evaluating(model):
            model(torch.zeros(1, *spec.input_shape))
    except RuntimeError as error:
        raise UsageError(
            f"Training {spec.model} on {spec.dataset}: it cannot take {spec.size[0]} x {spec.size[1]} images "
            f"({str(error).splitlines()[0]}). cnn7 and alexnet are made for 28 x 28, the others for 32 x 32."
        ) from error


def _own(device: str) -> torch.device:
    """The device of this process: under torchrun every process has a GPU of its own."""
    try:
        chosen = torch.device(device)
        if chosen.type == "cuda" and chosen.index is None:
            chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"--device is {device!r}: {str(error).splitlines()[0]}. Use cpu, or a GPU that is there."
        ) from error
    return chosen


def _kept(path: Path, model: nn.Module, spec: NetworkSpec, half: bool) -> nn.Module:
    """The network as its file has it. One process writes, none goes on before the file is there."""
    device = next(model.parameters()).device
    if world().writer:
        save_network(path, model, spec, half=half)
    wait_for_all()
    return load_network(path)[0].to(device) if half else model


def train_in_folder(config: TrainConfig, folder: RunFolder, device: str = "cpu") -> str:
    """Train and say in words what came out, on the test images where the set has some."""
    outcome = train_network(config, folder, device=device)
    lines = [f"Trained {config.model} on {outcome.spec.dataset} in {outcome.seconds:.0f} s; networks in {folder.path}."]
    for stage, held_out in (("stage 1", outcome.stage1_accuracy), ("stage 2", outcome.stage2_accuracy)):
        if held_out is not None:
            lines.append(f"  {stage}: {100 * held_out:.2f} % of the held-out images")
    if outcome.choice is not None:
        lines += choice_lines(outcome.choice)
    if found := thresholds(outcome.model):
        lines.append("  thresholds: " + "  ".join(f"{value:.3f}" for value in found.values()))
    test = config.data.of(outcome.spec).test()
    figure = test_accuracy(outcome.model, outcome.spec, test)
    which = "test" if config.data.split_by_folder else "training"  # a plain folder has no test images of its own
    lines.append(f"  {which} images: {100 * figure:.2f} % (before conversion)")
    if (line := chance_line(figure, outcome.spec.num_classes, len(test), "the trained network")) is not None:
        lines.append(line)
    if world().writer:
        records.write(folder / records.FILE_NAME, _record(config, outcome, figure, test, which))
    return "\n".join(lines)


def _record(
    config: TrainConfig, outcome: TrainOutcome, accuracy: float, images: ImageSet, split: str
) -> dict[str, Any]:
    """What a training leaves behind: the network before conversion, and no run of a spiking one yet."""
    graph, _ = lower(outcome.model.cpu(), torch.zeros(1, *outcome.spec.input_shape))
    return make_record(
        "train",
        f"{config.model} on {outcome.spec.dataset}: training",
        config.to_json() | {"thresholds": thresholds(outcome.model)},
        seed=config.stage1.seed,
        seconds=outcome.seconds,
        data={"name": images.name, "split": split, "images": len(images), "classes": list(images.classes)},
        ann=ann_entry(config.model, fold(graph), accuracy, None),
        runs=[],
        scale="full" if config.images is None else f"reduced: trained on {config.images:,} images",
        choice=outcome.choice,
    )


def choice_lines(choice: dict[str, Any]) -> list[str]:
    """What was tried for lambda of stage 2, and what was chosen."""
    lines = [f"  lambda chosen on {choice['images']:,} held-out images:"]
    for place, one in enumerate(choice["tried"]):
        name = "p = 1, without stage 2" if one["lam"] == 0.0 else f"lambda = {one['lam']:g}"
        cut_off = f"thresholds cut off {100 * (choice['ann_accuracy'] - one['clipped']):.2f} points"
        arrived = None if one["accuracy"] is None else steps_to(one["accuracy"], choice["ann_accuracy"] - 0.01)
        when = "not within 1 point of the ANN" if arrived is None else f"within 1 point after {arrived} steps"
        lines.append(f"    {name}: {cut_off}, {when}{'  <- chosen' if place == choice['chosen'] else ''}")
    return lines


def at_p_one(path: str | Path) -> nn.Module:
    """The network of a file with p = 1: as it was after stage 1."""
    model, _ = load_network(path)
    set_p_(model, 1.0)
    return model


def thresholds(model: nn.Module) -> dict[str, float]:
    """Every Rate Norm layer's threshold."""
    return {name: float(layer.threshold.detach().mean()) for name, layer in rate_norm_layers(model)}


def test_accuracy(model: nn.Module, spec: NetworkSpec, images: ImageSet) -> float:
    """Accuracy of the network before conversion."""
    return accuracy(model, Batches(images, 500, normalise=spec.normalisation))
