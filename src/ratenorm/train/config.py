"""The settings of the two stages: frozen, JSON-able, with the defaults that work."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ratenorm.data import Augment
from ratenorm.errors import UsageError

Schedule = Literal["triangular", "cosine", "constant"]


@dataclass(frozen=True)
class Stage1:
    """Accuracy training: SGD on the weights, p = 1. Options that are None are not used."""

    epochs: int = 30
    batch_size: int = 128
    lr: float = 0.1  # at its peak
    schedule: Schedule = "triangular"
    peak: float = 0.25  # fraction of the training at which the learning rate peaks
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4  # not on BatchNorm and biases
    label_smoothing: float = 0.0
    ema: float = 0.0  # decay a step of an average of the weights; 0: none. The average is then the result
    holdout: float = 0.1  # training images held out for choices: a share below 1, or a number
    augment: Augment = field(default_factory=Augment)
    small_size: int = 0  # shrink images to this side in the first part of the training; 0: never
    small_part: float = 0.5  # how large that part is
    settle: int | None = None  # take BatchNorm's statistics anew at the end, of the rates after so many steps
    teacher: float | None = None  # share of the loss that asks for the answers of the ReLU network it starts from
    # What the weights learn besides accuracy; with all four None they learn that alone, as in the paper.
    lam: float | None = None  # weight of the Rate Inference Loss (Eq. 9)
    energy: float | None = None  # weight of the mean firing rate
    rest: float | None = None  # weight of the current at rest (train/rest.py)
    steps: int | None = None  # rates as after so many steps or more, drawn for each batch (rates.steps_at); None: r^
    bfloat16: bool = False  # products in bfloat16 where the processor has it (train/precision.py); float32 elsewhere
    seed: int = 0
    checkpoint_minutes: float = 5.0

    def __post_init__(self) -> None:
        _positive("Stage 1", epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)
        _fraction("Stage 1", peak=self.peak, momentum=self.momentum, ema=self.ema, label_smoothing=self.label_smoothing)
        _fraction("Stage 1", small_part=self.small_part)
        for name, words, value in self.asked_of_rates():
            if value is not None and not 0.0 < value < math.inf:
                raise UsageError(f"Stage 1: {name} is {value}, {words}; it must be positive, or left out.")
        if self.teacher is not None and not 0.0 < self.teacher <= 1.0:
            raise UsageError(
                f"Stage 1: teacher is {self.teacher}, the share of the loss that a teacher has (--teacher); it must "
                "lie in (0, 1], or be left out."
            )
        if self.settle is not None and self.settle < 1:
            raise UsageError(
                f"Stage 1: settle is {self.settle}, the steps after which statistics are taken anew (--settle); it "
                "must be at least 1, or left out."
            )
        if self.small_size < 0:
            raise UsageError(f"Stage 1: small_size is {self.small_size}; it must be 0 (never) or a side in pixels.")

    def asked_of_rates(self) -> list[tuple[str, str, float | None]]:
        """What only a network with rates can learn: the setting, in words, and its value."""
        return [
            ("lam", "the weight of the Rate Inference Loss on the weights (--weights-lambda)", self.lam),
            ("energy", "the weight of the mean firing rate (--energy)", self.energy),
            ("rest", "the weight of the current at rest (--rest)", self.rest),
            ("steps", "the number of steps from which on rates are learned (--early)", self.steps),
        ]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Stage2:
    """Latency training: one p' shared by all layers, teacher at p = 1, loss 1 - cos + lambda * mean Omega (Eq. 13).

    With `lam` None, lambda is chosen on held-out images among `choice.LAMBDAS` and p = 1 (no stage 2), by the rule of
    `train/choice.py`. The paper's is 0.5.
    """

    epochs: int = 1
    batch_size: int = 128
    lam: float | None = None
    lr: float = 0.05  # of Adam, on p'
    start: float = 4.0  # p' at the start: p = sigmoid(4) = 0.982
    per_layer: bool = False  # after the shared p', one p' for each layer for as many epochs again
    images: int | None = None  # of the training set, for each epoch; None: all
    holdout: float = 0.1  # a share below 1, or a number
    seed: int = 0
    checkpoint_minutes: float = 5.0

    def __post_init__(self) -> None:
        _positive("Stage 2", epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)
        if self.lam is not None and not self.lam >= 0:
            raise UsageError(f"Stage 2: lam is {self.lam}; it must not be negative.")
        if self.lam is None and self.holdout == 0:
            raise UsageError(
                "Stage 2: lam is None, so lambda is chosen on held-out images, and holdout is 0. Hold some out, or "
                "give lam, such as the paper's 0.5."
            )
        if self.images is not None and self.images < 1:
            raise UsageError(f"Stage 2: images is {self.images}; it must be at least 1.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _positive(where: str, **values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise UsageError(f"{where}: {name} is {value}; it must be positive.")


def _fraction(where: str, **values: float) -> None:
    for name, value in values.items():
        if not 0.0 <= value < 1.0:
            raise UsageError(f"{where}: {name} is {value}; it must lie in [0, 1).")


def learning_rate(config: Stage1, step: int, steps: int) -> float:
    """The learning rate of step `step` of `steps` (from 0)."""
    if config.schedule == "constant":
        return config.lr
    done, top = (step + 1) / steps, config.peak
    if done <= top:
        return config.lr * done / top
    left = (1.0 - done + 1.0 / steps) / (1.0 - top + 1.0 / steps)  # the last step still learns
    return config.lr * (left if config.schedule == "triangular" else 0.5 * (1.0 - math.cos(math.pi * left)))
