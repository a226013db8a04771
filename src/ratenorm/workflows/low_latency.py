"""Train for low latency: convert with the recommended thresholds, calibrate step biases, train through time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ratenorm.calibrators.recipe import Recipe
from ratenorm.calibrators.step_bias import StepBias
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import Conversion
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.data import Batches, ImageSet
from ratenorm.distributed import wait_for_all, world
from ratenorm.graph.net import Graph, run
from ratenorm.io.networks import NetworkSpec
from ratenorm.io.run_folder import RunFolder
from ratenorm.io.spiking import save
from ratenorm.simulate.simulate import simulate
from ratenorm.train.stage1 import hold_out
from ratenorm.train.through_time import ThroughTime, check_trainable, train_through_time
from ratenorm.workflows.convert import CALIBRATION_IMAGES, about_conversion
from ratenorm.workflows.data import DataConfig, fingerprint_of, held_out_split
from ratenorm.workflows.own_network import load_any

SPIKING_FILE = "spiking.safetensors"
THRESHOLD_IMAGES = 1000
CHECKED_IMAGES = 2000  # at most so many held-out images tell how the network does
ACCEPTED_LOSS = 0.01  # a network further below its source than this is called so


@dataclass(frozen=True)
class LowLatencyConfig:
    """A training through time of one network file."""

    network: str
    data: DataConfig = field(default_factory=DataConfig)
    training: ThroughTime = field(default_factory=ThroughTime)
    images: int | None = None
    model: str | None = None  # the user's own network: package.module:function

    def to_json(self) -> dict[str, Any]:
        """The settings as plain values."""
        return {
            "network": self.network,
            "data": self.data.to_json(),
            "training": self.training.to_json(),
            "images": self.images,
            **({} if self.model is None else {"model": self.model}),
        }


@dataclass(frozen=True)
class LowLatencyResult:
    """The trained network, and accuracies on held-out training images after each step."""

    conversion: Conversion
    ann_accuracy: float | None
    calibrated: tuple[float, ...]
    trained: tuple[float, ...]
    images: int

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values: accuracies after each step."""
        return {
            "held_out_images": self.images,
            "ann_accuracy": self.ann_accuracy,
            "calibrated": list(self.calibrated),
            "trained": list(self.trained),
        }

    def __str__(self) -> str:
        if self.ann_accuracy is None:
            return "No images were held out, so no accuracy is known. Evaluate the network on test images."
        shown = [t for t in (1, 2, 4, 8, 16) if t <= len(self.trained)]
        lines = [
            f"Accuracy on {self.images:,} held-out training images; the ANN has {100 * self.ann_accuracy:.2f} %.",
            f"{'T':<12}" + "".join(f"{t:>8}" for t in shown),
            f"{'calibrated':<12}" + "".join(f"{100 * self.calibrated[t - 1]:>8.2f}" for t in shown),
            f"{'trained':<12}" + "".join(f"{100 * self.trained[t - 1]:>8.2f}" for t in shown),
        ]
        steps = self.conversion.calibrated[-1].steps
        if (loss := self.ann_accuracy - self.trained[steps - 1]) > ACCEPTED_LOSS:
            lines.append(
                f"WARNING: at T = {steps} it is {100 * loss:.2f} points below the ANN. Train for more epochs or more "
                "steps."
            )
        return "\n".join(lines)


def low_latency(config: LowLatencyConfig, folder: RunFolder, *, show: bool = True) -> LowLatencyResult:
    """Run the whole recipe in a folder; a training that was stopped resumes there."""
    model, spec = load_any(config.network, config.model, config.data)
    if (split := held_out_split(spec, config.network)) is not None:  # what the network has not learned from
        config = replace(config, training=replace(config.training, holdout=split[0], seed=split[1]))
    data = config.data.of(spec).train()
    # Held out first: with fewer images the held-out ones are still those that the network has not learned from.
    train, held_out = hold_out(data, config.training.holdout, config.training.seed)
    # Kept in the file: early exit and diagnosis look for these images.
    spec = replace(spec, held_out=None if held_out is None else (len(held_out), config.training.seed))
    if config.images is not None:
        train = train.subset(range(min(config.images, len(train))))
    graph, report = lower(model, torch.zeros(1, *spec.input_shape))
    analog = fold(graph)
    few = _normalised(train, spec, THRESHOLD_IMAGES)
    steps = config.training.steps
    recipe = Recipe("recommended+step-bias", None, None, ((StepBias(), steps),))
    start = recipe.apply(
        analog,
        Calibration(few, shared=False),
        report,
        calibration_images=Calibration(few[:CALIBRATION_IMAGES], shared=False),
        progress=show,
    )
    check_trainable(start.net)
    trained, _ = train_through_time(
        start,
        train,
        config.training,
        held_out=held_out,
        normalise=spec.normalisation,
        run_folder=folder,
        show=show,
    )
    if world().writer:
        save(trained.net, folder / SPIKING_FILE, about_conversion(trained, spec, fingerprint_of(config.data, data)))
    wait_for_all()
    if held_out is None:
        return LowLatencyResult(trained, None, (), (), 0)
    checks = held_out.subset(range(min(CHECKED_IMAGES, len(held_out))))
    before, after = (_accuracy(one, checks, spec, 4 * steps) for one in (start, trained))
    return LowLatencyResult(trained, _ann_accuracy(analog, checks, spec), before, after, len(checks))


def _normalised(images: ImageSet, spec: NetworkSpec, count: int) -> torch.Tensor:
    some = images.subset(range(min(count, len(images))))
    return torch.cat([x for x, _ in Batches(some, 500, normalise=spec.normalisation)])


def _accuracy(conversion: Conversion, images: ImageSet, spec: NetworkSpec, steps: int) -> tuple[float, ...]:
    right = torch.zeros(steps, dtype=torch.int64)
    for x, y in Batches(images, 200, normalise=spec.normalisation):
        right += (simulate(conversion.net, x, steps).logits.argmax(-1) == y).sum(1)
    return tuple((right.double() / len(images)).tolist())


def _ann_accuracy(analog: Graph, images: ImageSet, spec: NetworkSpec) -> float:
    right = 0
    with torch.no_grad():
        for x, y in Batches(images, 200, normalise=spec.normalisation):
            right += int((run(analog, x).argmax(-1) == y).sum())
    return right / len(images)
