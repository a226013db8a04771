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
    lams: tuple[float, ...] = (0.005,)  # others, and p = 1: one is chosen on held-out images
    per_layer: tuple[bool, ...] = (False,)  # one p' shared by all layers (appendix B), one for each, or both tried
    seeds: tuple[int, ...] = (0,)
    steps: int = 256
    where: str = "table 1"
    note: str = ""  # about the network
    rnl_note: str = ""  # about its training with Rate Norm, where it departs from the paper
    seen: str = ""  # what was known of the test images when this recipe was written
    variant: str = ""  # what sets it apart from another preset of the same network
    base: str = ""  # the preset whose ReLU network it goes on from, where that is not its own
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
            replace(own, lam=lam, per_layer=each)
            for each in self.per_layer
            for lam in sorted({own.lam or 0.0, *self.lams})
        ]
        return [own, *(other for other in others if other != own)]


SMALL = {"cifar10": 24, "cifar100": 24}  # side of the images in the first part of the long training
HELD_OUT = 2000  # choices (lambda) are made on these
PAPERS_LAMBDA = 0.5  # of stage 2
OMEGA = 2.3  # where the maxima of Rate Norm are held
THREE = (0, 1, 2)
NARROW = "512-wide fully connected layers"
CNN7_SEEN = "Test accuracies of the paper's own recipe were known before this one took its place"
RESNET20_SEEN = (
    "Test accuracies of two earlier recipes were known: the ReLU training was made longer after the first, the current "
    "at rest came into the loss after the second"
)
VGG_SEEN = (
    "Test accuracies of four earlier networks were known when this recipe was first written, and all of the fifth's, "
    "which lost 0.02 points at T = 256 where nothing was to be lost, when it was given ten epochs instead of seven and "
    "BatchNorm statistics of 32 steps instead of 128, as held-out images advised (docs/architecture.md): what it has "
    "on the test images flatters it"
)


def _preset(
    name: str,
    model: str,
    data: str,
    epochs: int,
    lr: float,
    tune: int,
    tune_lr: float = 0.02,
    lam: float = 0.05,
    smooth: float = 0.0,
    small: int | None = None,
    bfloat16: bool = True,
    tune_bfloat16: bool | None = None,
    learn: int = 20_000,
    energy: float | None = None,
    rest: float | None = None,
    early: int | None = None,
    teacher: float | None = None,
    settle: int | None = None,
    **more: Any,
) -> Preset:
    """ReLU for `epochs`, then `tune` epochs with Rate Norm that learn the Rate Inference Loss, weighted with `lam`;
    with an `energy` to fire seldom, with a `rest` to do without currents at rest, with `early` to be right after few
    steps, with a `teacher` to answer as the ReLU network does, with `settle` to have the statistics of so many steps.

    Stage 2 learns p, a single number, from `learn` images: it stands still after some thirty batches.
    """
    small = SMALL.get(data, 0) if small is None else small
    both: dict[str, Any] = {"augment": AUGMENTS[data], "label_smoothing": smooth, "holdout": HELD_OUT}
    part = 0.58 if small else 0.0
    besides = ""
    if energy is not None:
        besides += f"; the mean firing rate is in the loss of the weights as well, times {energy:g}"
    if rest is not None:
        besides += f"; the mean square of the current at rest, in thresholds, is in that loss too, times {rest:g}"
    if early is not None:
        besides += f"; rates are those of {early} steps or more, drawn for each batch"
    if teacher is not None:
        besides += f"; the ReLU network's answers are learned beside the labels, with {teacher:g} of the loss"
    if settle is not None:
        besides += f"; BatchNorm's statistics are taken anew at the end, of the rates after {settle} steps"
    return Preset(
        name,
        model,
        data,
        Stage1(epochs=epochs, lr=lr, ema=0.998, small_size=small, small_part=part, bfloat16=bfloat16, **both),
        Stage1(
            epochs=tune,
            lr=tune_lr,
            ema=0.995,
            peak=0.1,
            lam=lam,
            energy=energy,
            rest=rest,
            steps=early,
            settle=settle,
            teacher=teacher,
            bfloat16=bfloat16 if tune_bfloat16 is None else tune_bfloat16,
            **both,
        ),
        Stage2(lam=0.02, images=learn, holdout=HELD_OUT),
        omega=OMEGA,
        rnl_note=f"Stage 1 holds its maxima where the ReLU network's layers have Ω = {OMEGA} and learns the Rate "
        f"Inference Loss by its weights too, with λ = {lam} (the paper: by p alone){besides}",
        **more,
    )


def _published(ours: Preset, **more: Any) -> Preset:
    """The training as the paper has it, from the ReLU network of `ours`: weights learn accuracy alone, maxima run, the
    Rate Inference Loss is learned by p. Its lambda is tried first."""
    plain = replace(ours.rnl, lam=None, energy=None, rest=None, steps=None, teacher=None, settle=None)
    changed: dict[str, Any] = {"name": f"{ours.name}-published", "variant": "as published", "base": ours.name}
    changed |= {"rnl": plain, "ril": replace(ours.ril, lam=PAPERS_LAMBDA), "lams": (0.02, 0.1), "omega": None}
    return replace(ours, **changed, rnl_note="", seen="", **more)


_OURS: tuple[Preset, ...] = (
    _preset("cnn7-mnist", "cnn7", "mnist", 12, 0.1, 4, bfloat16=False, seeds=THREE, seen=CNN7_SEEN, epoch_minutes=0.5),
    _preset(
        "alexnet-mnist",
        "alexnet",
        "mnist",
        8,
        0.05,
        3,
        small=20,
        learn=8_000,
        energy=1.0,
        seeds=THREE,
        epoch_minutes=3,
    ),
    _preset(
        "preact_resnet20-cifar10",
        "preact_resnet20",
        "cifar10",
        32,
        0.2,
        8,
        tune_lr=0.04,
        rest=3.0,
        early=64,
        teacher=0.5,
        seeds=THREE,
        where="workhorse",
        note="ResNet-20 of Table 1 in pre-activation form",
        seen=RESNET20_SEEN,
        epoch_minutes=1.2,
    ),
    _preset(
        "vgg16-cifar10",
        "vgg16",
        "cifar10",
        24,
        0.05,
        10,
        tune_lr=0.03,
        lam=0.1,
        smooth=0.1,
        energy=1.5,
        lams=(0.05,),
        learn=8_000,
        rest=4.0,
        early=32,
        settle=32,
        teacher=0.7,
        bfloat16=False,
        tune_bfloat16=True,
        steps=512,
        where="tables 1 and 2, figures 4, 6, 7",
        note=NARROW,
        seen=VGG_SEEN,
        epoch_minutes=16,
    ),
    _preset(
        "preact_resnet18-cifar10",
        "preact_resnet18",
        "cifar10",
        24,
        0.1,
        7,
        lam=0.1,
        smooth=0.1,
        steps=512,
        where="tables 1 and 2",
        epoch_minutes=16,
    ),
    _preset("vgg16-cifar100", "vgg16", "cifar100", 30, 0.05, 7, smooth=0.1, note=NARROW, epoch_minutes=8),
    _preset("preact_resnet18-cifar100", "preact_resnet18", "cifar100", 30, 0.1, 7, smooth=0.1, epoch_minutes=16),
    _preset("preact_resnet34-cifar100", "preact_resnet34", "cifar100", 30, 0.1, 7, smooth=0.1, epoch_minutes=32),
)
# The recipe as published, on the networks that can be had in minutes: what ours adds can then be seen.
_PUBLISHED = {"cnn7-mnist": THREE, "preact_resnet20-cifar10": (0,)}
ALL: tuple[Preset, ...] = tuple(
    preset
    for ours in _OURS
    for preset in (ours, *([_published(ours, seeds=_PUBLISHED[ours.name])] if ours.name in _PUBLISHED else []))
)

BY_NAME = {preset.name: preset for preset in ALL}


def named(name: str) -> Preset:
    """The preset of that name."""
    if name not in BY_NAME:
        raise UsageError(f"No preset is called {name!r}. There are: {', '.join(BY_NAME)}.")
    return BY_NAME[name]
