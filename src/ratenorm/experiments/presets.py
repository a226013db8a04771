"""One preset a network of the paper's tables: how it is trained here, what is compared on it, what the paper found.

The authors trained a ReLU network first and went on from its weights with Rate Norm layers. So do we: one long
training then serves the baselines and us.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ratenorm.data import AUGMENTS
from ratenorm.data.sets import KNOWN
from ratenorm.errors import UsageError
from ratenorm.train.config import Stage1, Stage2

# What the paper compares with: method on the command line -> its name in the tables.
BASELINES: dict[str, str] = {
    "max": "Max Norm",
    "percentile:99.9": "Robust Norm",
    "spike": "SpikeNorm",
    "scaled:0.8:spike": "RMP",
    "data": "Diehl, data-based",
    "model": "Diehl, model-based",
    "channel": "channel-wise",
}
IN_TABLE_2 = ("Max Norm", "Robust Norm", "RMP")  # with which the paper compares step by step
OUR_WEIGHTS = ", our weights"  # behind the name of a baseline that starts from the Rate-Norm network


@dataclass(frozen=True)
class Preset:
    """A network of the paper, for one or more seeds."""

    name: str
    model: str
    data: str
    relu: Stage1  # the long training, with ReLU
    rnl: Stage1  # goes on from its weights with Rate Norm layers
    ril: Stage2  # p'; its lambda is the first of those tried
    omega: float | None = None  # hold the maxima of Rate Norm where the ReLU network has this Omega; None: they run
    lams: tuple[float, ...] = (0.005, 0.01, 0.02, 0.05, 0.2)  # the others: one is chosen on held-out images
    per_layer: tuple[bool, ...] = (False,)  # one p' shared by all layers (appendix B), one for each, or both tried
    seeds: tuple[int, ...] = (0,)
    steps: int = 256
    where: str = "table 1"
    note: str = ""  # about the network
    rnl_note: str = ""  # about its training with Rate Norm, where it departs from the paper
    epoch_minutes: float = 1.0  # of the ReLU training on two free cores: rough, to say beforehand what is asked for

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def hours(self) -> float:
        """Roughly, of both trainings; small images cost what their area does."""
        part = self.relu.small_part if self.relu.small_size else 0.0
        saved = part * (1 - (self.relu.small_size / KNOWN[self.data].image_shape[-1]) ** 2)
        return (self.relu.epochs * (1 - saved) + self.rnl.epochs) * self.epoch_minutes / 60

    def stage2_candidates(self, seed: int) -> list[Stage2]:
        """What stage 2 tries; the first is the one trained together with the network."""
        own = replace(self.ril, seed=seed)
        others = [
            replace(own, lam=lam, per_layer=each) for each in self.per_layer for lam in sorted({own.lam, *self.lams})
        ]
        return [own, *(other for other in others if other != own)]


SMALL = {"cifar10": 24, "cifar100": 24}  # side of the images in the first part of the long training
HELD_OUT = 2000  # choices (lambda) are made on these
BY_WEIGHTS = (
    "Stage 1 holds its maxima where the ReLU network's layers have Ω = {omega} and learns the Rate Inference Loss by "
    "its weights too, with λ = {lam} (the paper: by p alone)"
)


def _recipe(
    data: str,
    epochs: int,
    lr: float,
    tune: int,
    smooth: float = 0.0,
    tune_lr: float | None = None,
    weights_lam: float | None = None,
    small: int | None = None,
    bfloat16: bool = False,
) -> tuple[Stage1, Stage1]:
    augment, small = AUGMENTS[data], SMALL.get(data, 0) if small is None else small
    relu = Stage1(
        epochs=epochs,
        lr=lr,
        augment=augment,
        label_smoothing=smooth,
        ema=0.998,
        holdout=HELD_OUT,
        small_size=small,
        small_part=0.58 if small else 0.0,
        bfloat16=bfloat16,
    )
    rnl = Stage1(
        epochs=tune,
        lr=tune_lr or lr / 10,
        peak=0.1,
        augment=augment,
        label_smoothing=smooth,
        ema=0.995,
        holdout=HELD_OUT,
        lam=weights_lam,
        bfloat16=bfloat16,
    )
    return relu, rnl


def _preset(name: str, model: str, data: str, epochs: int, lr: float, tune: int, lam: float, **more: Any) -> Preset:
    options = {key: more.pop(key) for key in ("smooth", "tune_lr", "weights_lam", "small", "bfloat16") if key in more}
    relu, rnl = _recipe(data, epochs, lr, tune, **options)
    return Preset(name, model, data, relu, rnl, Stage2(lam=lam, images=20_000, holdout=HELD_OUT), **more)


ALL: tuple[Preset, ...] = (
    _preset(
        "cnn7-mnist",
        "cnn7",
        "mnist",
        12,
        0.1,
        4,
        0.02,
        tune_lr=0.02,
        weights_lam=0.05,
        omega=2.3,
        lams=(0.005,),
        seeds=(0, 1, 2),
        rnl_note=BY_WEIGHTS.format(omega=2.3, lam=0.05),
        epoch_minutes=0.5,
    ),
    _preset(
        "alexnet-mnist",
        "alexnet",
        "mnist",
        8,
        0.05,
        3,
        0.02,
        tune_lr=0.02,
        weights_lam=0.05,
        omega=2.3,
        lams=(0.005,),
        small=20,
        bfloat16=True,
        seeds=(0, 1, 2),
        rnl_note=BY_WEIGHTS.format(omega=2.3, lam=0.05),
        epoch_minutes=3,
    ),
    _preset(
        "preact_resnet20-cifar10",
        "preact_resnet20",
        "cifar10",
        32,
        0.2,
        8,
        0.02,
        tune_lr=0.04,
        bfloat16=True,
        weights_lam=0.05,
        omega=2.3,
        lams=(0.005,),
        seeds=(0, 1, 2),
        where="workhorse",
        note="ResNet-20 of Table 1 in pre-activation form",
        rnl_note=BY_WEIGHTS.format(omega=2.3, lam=0.05),
        epoch_minutes=2,
    ),
    _preset(
        "vgg16-cifar10",
        "vgg16",
        "cifar10",
        24,
        0.05,
        7,
        0.02,
        smooth=0.1,
        tune_lr=0.02,
        weights_lam=0.1,
        omega=2.3,
        lams=(0.005,),
        steps=512,
        where="tables 1 and 2, figures 4, 6, 7",
        note="512-wide fully connected layers",
        rnl_note=BY_WEIGHTS.format(omega=2.3, lam=0.1),
        epoch_minutes=16,
    ),
    _preset(
        "preact_resnet18-cifar10",
        "preact_resnet18",
        "cifar10",
        24,
        0.1,
        4,
        0.1,
        smooth=0.1,
        steps=512,
        where="tables 1 and 2",
        epoch_minutes=30,
    ),
    _preset(
        "vgg16-cifar100",
        "vgg16",
        "cifar100",
        30,
        0.05,
        5,
        0.1,
        smooth=0.1,
        note="512-wide fully connected layers",
        epoch_minutes=16,
    ),
    _preset("preact_resnet18-cifar100", "preact_resnet18", "cifar100", 30, 0.1, 5, 0.1, smooth=0.1, epoch_minutes=30),
    _preset("preact_resnet34-cifar100", "preact_resnet34", "cifar100", 30, 0.1, 5, 0.1, smooth=0.1, epoch_minutes=60),
)

BY_NAME = {preset.name: preset for preset in ALL}


def named(name: str) -> Preset:
    """The preset of that name."""
    if name not in BY_NAME:
        raise UsageError(f"No preset is called {name!r}. There are: {', '.join(BY_NAME)}.")
    return BY_NAME[name]
