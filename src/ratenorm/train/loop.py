"""The loop both stages share: batches in order, metrics, checkpoints, progress, and a stop that loses nothing."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from tqdm import tqdm

from ratenorm.data import Batches
from ratenorm.distributed import largest, total, wait_for_all, world
from ratenorm.errors import FileFormatError, TrainingError
from ratenorm.io.run_folder import RunFolder
from ratenorm.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from ratenorm.train.interrupt import Interrupted, Interrupts

CHECK_BATCH = 480  # images at a time when accuracy is checked; shared evenly by 2, 3, 4, 5, 6, 8 … processes


class Stage(Protocol):
    """What a stage gives the loop."""

    name: str
    epochs: int
    batches: Batches

    def step(self, images: Tensor, labels: Tensor, step: int) -> dict[str, float]:
        """Learn from one batch; returns figures, among them `loss`."""

    def end_of_epoch(self, epoch: int) -> dict[str, float]:
        """Figures of a finished epoch, for example the held-out accuracy."""

    def state(self) -> dict[str, Tensor]:
        """Everything that changes, by name."""

    def restore_(self, checkpoint: Checkpoint) -> None:
        """The inverse of `state`."""

    def suspect(self, images: Tensor) -> str:
        """Where NaN or infinity appears first, in words."""


@dataclass
class Position:
    """How far a training is."""

    epoch: int = 0
    batch: int = 0  # batches done in this epoch
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)  # one entry an epoch
    logged: int = 0
    sums: dict[str, float] = field(default_factory=dict)  # of the figures of this epoch's batches

    def to_json(self) -> dict[str, Any]:
        return vars(self)

    @classmethod
    def from_json(cls, progress: dict[str, Any], epochs: int) -> Position:
        """The inverse of `to_json`; ValueError or TypeError where it describes no place in a training."""
        at = cls(**progress)
        numbers = (at.epoch, at.batch, at.logged)
        if any(type(n) is not int or n < 0 for n in numbers) or not 0 <= float(at.seconds) < math.inf:
            raise ValueError(f"epoch {at.epoch!r}, batch {at.batch!r}, {at.seconds!r} seconds")
        if at.epoch > epochs or len(at.history) != at.epoch:
            raise ValueError(f"{len(at.history)} finished epochs at epoch {at.epoch} of {epochs}")
        if not all(isinstance(e, dict) for e in at.history) or not all(map(math.isfinite, dict(at.sums).values())):
            raise ValueError("its figures are no numbers")
        return at


def run_stage(stage: Stage, folder: RunFolder | None, checkpoint_minutes: float, *, show: bool = True) -> Position:
    """Train until the last epoch is done. With a folder that holds a checkpoint of this stage, go on from there."""
    return _Runner(stage, folder, checkpoint_minutes, show).run()


class _Runner:
    """One stage on its way: where it is, when it was last saved, and who asked it to stop."""

    def __init__(self, stage: Stage, folder: RunFolder | None, checkpoint_minutes: float, show: bool) -> None:
        self.stage, self.folder, self.minutes = stage, folder, checkpoint_minutes
        self.show = show and world().writer
        self.path = None if folder is None else folder / f"{stage.name}.checkpoint.safetensors"
        self.at = Position()
        fresh = self.path is None or not self.path.exists()
        if folder is not None and self.path is not None and not fresh:
            self.at = _resume(stage, folder, read_checkpoint(self.path))
        wait_for_all()  # everybody has looked before one writes
        self.clock = time.monotonic() - self.at.seconds
        self.saved = time.monotonic()
        if fresh:
            self.save()  # a run that is killed before its first checkpoint knows where its metrics began

    def save(self) -> None:
        if self.folder is not None and self.path is not None and world().writer:
            self.at.seconds, self.at.logged = time.monotonic() - self.clock, self.folder.logged
            state = self.stage.state()
            if bad := first_bad_tensor(state):
                raise TrainingError(_bad_state(self.stage, self.at, bad, self.path))
            write_checkpoint(self.path, Checkpoint(state, {"stage": self.stage.name, **self.at.to_json()}))
        self.saved = time.monotonic()

    def run(self) -> Position:
        stage, at = self.stage, self.at
        bar = tqdm(
            total=stage.epochs * len(stage.batches),
            initial=at.epoch * len(stage.batches) + at.batch,
            desc=stage.name,
            unit="batch",
            disable=not self.show,
            dynamic_ncols=True,
            mininterval=0.5,
        )
        with Interrupts() as interrupts, contextlib.closing(bar):
            while at.epoch < stage.epochs:
                for images, labels in stage.batches.epoch(at.epoch, at.batch):
                    figures = self._step(images, labels)
                    bar.update()
                    bar.set_postfix({k: f"{v:.4g}" for k, v in figures.items()}, refresh=False)
                    if stop := _signal_anywhere(interrupts):
                        self.save()
                        raise Interrupted(stop, _stopped(stage, at, self.path))
                    if time.monotonic() - self.saved > 60 * self.minutes:
                        self.save()
                self._end_epoch()
                if stop := _signal_anywhere(interrupts):  # it came after the last batch, while accuracy was checked
                    raise Interrupted(stop, _stopped(stage, at, self.path))
        return at

    def _step(self, images: Tensor, labels: Tensor) -> dict[str, float]:
        stage, at = self.stage, self.at
        figures = stage.step(images, labels, at.epoch * len(stage.batches) + at.batch)
        if bad := next((name for name, value in figures.items() if not math.isfinite(value)), None):
            raise TrainingError(_bad_figure(stage, at, bad, figures[bad], images, self.path))
        at.batch += 1
        for name, value in figures.items():
            at.sums[name] = at.sums.get(name, 0.0) + value
        return figures

    def _end_epoch(self) -> None:
        stage, at = self.stage, self.at
        at.seconds = time.monotonic() - self.clock
        entry = {
            "stage": stage.name,
            "epoch": at.epoch + 1,
            "epochs": stage.epochs,
            "step": (at.epoch + 1) * len(stage.batches),
            "seconds": at.seconds,
            **{k: v / len(stage.batches) for k, v in at.sums.items()},
            **stage.end_of_epoch(at.epoch),
        }
        entry["eta_seconds"] = at.seconds / (at.epoch + 1) * (stage.epochs - at.epoch - 1)
        at.history.append(entry)
        at.epoch, at.batch, at.sums = at.epoch + 1, 0, {}
        if self.folder is not None:
            self.folder.log(entry)
        self.save()
        if self.show:
            tqdm.write(_line(entry), file=sys.stderr)


def _signal_anywhere(interrupts: Interrupts) -> int:
    """The signal that any of the processes received, 0 for none: all stop after the same step, or none does."""
    return int(largest(torch.tensor(interrupts.received or 0)))


def _resume(stage: Stage, folder: RunFolder, checkpoint: Checkpoint) -> Position:
    progress = dict(checkpoint.progress)
    if progress.pop("stage", None) != stage.name:
        raise FileFormatError(f"Resuming {folder.path}: the checkpoint is not of {stage.name}.")
    try:
        at = Position.from_json(progress, stage.epochs)
        stage.restore_(checkpoint)
    except (TypeError, KeyError, ValueError, RuntimeError, IndexError) as error:
        raise FileFormatError(
            f"Resuming {folder.path}: the checkpoint does not fit this training "
            f"({str(error).splitlines()[0][:200]}). Start anew with --overwrite."
        ) from error
    if at.epoch < stage.epochs:  # what follows a finished stage in the metrics belongs to the next one
        folder.rewind(at.logged)
    return at


def _bad_figure(stage: Stage, at: Position, name: str, value: float, images: Tensor, path: Any) -> str:
    kept = f" The last good state is in {path}." if path is not None and path.exists() else ""
    return (
        f"Training {stage.name}: the {name} became {value} in epoch {at.epoch + 1}, batch {at.batch + 1}; "
        f"{stage.suspect(images)}. Lower the learning rate, or check the data.{kept}"
    )


def _bad_state(stage: Stage, at: Position, bad: str, path: Any) -> str:
    kept = f"the last good state stays in {path}" if path.exists() else "it was not saved"
    return (
        f"Training {stage.name}: {bad} holds NaN or infinity in epoch {at.epoch + 1} after {at.batch} batches; {kept}. "
        "Lower the learning rate, or check the data."
    )


def first_bad_tensor(state: dict[str, Tensor]) -> str | None:
    """The name of a tensor that holds NaN or infinity."""
    return next((n for n, t in state.items() if t.is_floating_point() and not torch.isfinite(t).all()), None)


def _stopped(stage: Stage, at: Position, path: Any) -> str:
    where = "nothing was saved, since no run folder was given" if path is None else f"the state is in {path}"
    return (
        f"Training {stage.name} was stopped in epoch {at.epoch + 1} after {at.batch} batches; {where}. "
        "Continue with --resume."
    )


def _line(entry: dict[str, Any]) -> str:
    figures = "  ".join(
        f"{k} {v:.4f}" for k, v in entry.items() if isinstance(v, float) and k not in ("seconds", "eta_seconds")
    )
    return f"{entry['stage']} epoch {entry['epoch']}/{entry['epochs']}  {figures}  ({entry['seconds']:.0f} s)"


@torch.no_grad()
def first_bad_layer(model: nn.Module, images: Tensor) -> str:
    """Which weight or layer's output is NaN or infinite first, in words."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"the weights {name!r} hold NaN or infinity"
    for name, parameter in reversed(list(model.named_parameters())):  # gradients come from behind
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return f"the gradient of {name!r} holds NaN or infinity"
    found: list[str] = []

    def look(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not found and not torch.isfinite(output).all():
                found.append(name)

        return hook

    handles = [m.register_forward_hook(look(n)) for n, m in model.named_modules() if not list(m.children())]
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    return f"layer {found[0]!r} gives NaN or infinity" if found else "every layer is finite in the forward pass"


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode without gradients, its mode restored afterwards."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def accuracy(model: nn.Module, batches: Batches) -> float:
    """Fraction of images that the network classifies right; of all processes' images, where they share them."""
    counted = torch.zeros(2, dtype=torch.int64)
    with evaluating(model):
        for images, labels in batches:
            if len(images):
                answers = model(fitted(images, model)).argmax(1).cpu()
                counted += torch.tensor([int((answers == labels).sum()), len(labels)])
    right, seen = (int(n) for n in total(counted))
    return right / seen


def device_of(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def fitted(images: Tensor, model: nn.Module) -> Tensor:
    """Images on the model's device, channels_last, which is what oneDNN and cuDNN are fast on."""
    images = images.to(device_of(model))
    return images.contiguous(memory_format=torch.channels_last) if images.ndim == 4 else images
