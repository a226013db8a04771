"""Stage 1 (Eq. 12): train the weights of a Rate-Norm network at p = 1, from scratch or from a ReLU network's
weights. With a lambda the weights learn the Rate Inference Loss as well (Eq. 9, which the paper splits in two stages),
with an energy to fire seldom, with a rest to do without biases, with steps to be right early; with a teacher they learn
to answer as the ReLU network does that they came from.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm.core.losses import accuracy_loss, rate_inference_loss, teaching_loss
from ratenorm.core.rate_norm import rate_norm_layers, set_p_
from ratenorm.data import Augment, Batches, ImageSet, Normalisation, from_dataset, split_holdout
from ratenorm.distributed import total, world
from ratenorm.errors import DataError, TrainingError, UsageError
from ratenorm.io.run_folder import RunFolder
from ratenorm.train.checkpoint import Checkpoint, optimizer_tensors, restore_optimizer_
from ratenorm.train.config import Stage1, learning_rate
from ratenorm.train.global_batch_norm import global_batch_norm
from ratenorm.train.loop import (
    CHECK_BATCH,
    accuracy,
    device_of,
    first_bad_layer,
    fitted,
    run_stage,
)
from ratenorm.train.precision import products
from ratenorm.train.rates import after_steps, mean_rate, omegas, steps_at, watched
from ratenorm.train.resolution import any_size, shrunk, size_at
from ratenorm.train.rest import resting
from ratenorm.train.settle import settle_

# A threshold's gradient is a sum over all neurons of its layer, some 100 times that of one weight: its learning rate is
# this share of the weights'. With an equal rate the thresholds of PreActResNet-20 collapse within 300 batches.
THRESHOLD_SHARE = 0.01


@dataclass(frozen=True)
class TrainingResult:
    """What a stage ended with.

    Args:
        validation_accuracy: On the held-out images; None without any.
        history: One entry of figures for each epoch.
        seconds: Time spent.
        choice: What was tried where lambda was chosen: the `choice` entry of a record.
    """

    validation_accuracy: float | None
    history: list[dict[str, Any]]
    seconds: float
    choice: dict[str, Any] | None = None


class _AccuracyStage:
    name = "stage1"

    def __init__(
        self,
        model: nn.Module,
        train: Batches,
        held_out: Batches | None,
        config: Stage1,
        teacher: nn.Module | None = None,
    ) -> None:
        self.model, self.batches, self.held_out, self.config, self.teacher = model, train, held_out, config, teacher
        self.epochs = config.epochs
        self.optimizer = _optimizer(model, config)
        # DDP averages gradients over processes; BatchNorm and Rate Norm agree on their statistics themselves.
        self.forward: nn.Module = averaging(model) if world().size > 1 else model
        self.steps = config.epochs * len(train)
        self.rate_norms = dict(rate_norm_layers(model))
        self.layers = self.rate_norms if config.lam or config.energy else {}
        self.omegas: list[float] = []  # of the last batch
        self.average = {k: v.detach().clone() for k, v in model.state_dict().items()} if config.ema else {}

    def step(self, images: Tensor, labels: Tensor, step: int) -> dict[str, float]:
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, step, self.steps) * group["share"]
        side = size_at(self.config, step, self.steps)
        device = device_of(self.model)
        images, labels = fitted(shrunk(images, side), self.model), labels.to(device)
        with (
            _sizes(self.model, side),
            products(self.config.bfloat16, device),
            after_steps(self.rate_norms.values(), steps_at(self.config, step)),
            watched(self.layers.values()) as sums,
            resting(self.model, bool(self.config.rest)) as still,
        ):
            output = self.forward(images)
        output = _exact(output)
        loss = accuracy_loss(output, labels, self.config.label_smoothing)
        extra: dict[str, float] = {}
        if self.teacher is not None and self.config.teacher is not None:
            with torch.no_grad(), _sizes(self.teacher, side), products(self.config.bfloat16, device):
                known = self.teacher(images)
            taught = teaching_loss(_exact(known), output)
            loss = torch.lerp(loss, taught, self.config.teacher)
            extra["taught"] = float(taught.detach())
        for name, weight, asked in self._asked_of_the_weights(sums, still):
            loss = loss + weight * asked
            extra[name] = float(asked.detach())
        value = float(total(loss.detach())) / world().size  # shards are equal, so the mean of means is the mean
        if not math.isfinite(value):
            return {"loss": value}  # do not let it into the weights
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        largest = self._largest_gradient()
        if not math.isfinite(largest):
            return {"loss": value, "gradient": largest}
        self.optimizer.step()
        self._move_average(step)
        return {"loss": value, "lr": float(self.optimizer.param_groups[0]["lr"]), **extra}

    def _asked_of_the_weights(self, sums: list[Tensor], still: list[Tensor]) -> Iterator[tuple[str, float, Tensor]]:
        """What they learn besides accuracy: name, weight in the loss, value."""
        if self.config.lam:
            found = omegas(sums)
            self.omegas = [float(o.detach()) for o in found]
            yield "omega", self.config.lam, rate_inference_loss(found)
        if self.config.energy:
            yield "rate", self.config.energy, mean_rate(sums)
        if self.config.rest:
            if not still:
                raise TrainingError(
                    "Training with a weight on the current at rest: no Rate Norm layer but the first stands directly "
                    "behind a BatchNorm, convolution or linear layer with a bias, so there is none. Leave it out."
                )
            yield "rest", self.config.rest, torch.stack(still).mean()

    def _largest_gradient(self) -> float:
        found = [p.grad for p in self.model.parameters() if p.grad is not None]
        return float(nn.utils.get_total_norm(found, math.inf))

    @torch.no_grad()
    def _move_average(self, step: int) -> None:
        decay = min(self.config.ema, (step + 1) / (step + 10))  # follow closely at first
        for name, value in self.model.state_dict().items() if self.average else ():
            if value.is_floating_point():
                self.average[name].lerp_(value, 1.0 - decay)
            else:
                self.average[name].copy_(value)

    def end_of_epoch(self, epoch: int) -> dict[str, float]:
        if self.held_out is None:
            return {}
        own = {k: v.detach().clone() for k, v in self.model.state_dict().items()} if self.average else {}
        self._load(self.average)
        figure = accuracy(self.model, self.held_out)
        self._load(own)
        return {"accuracy": figure}

    def finish(self) -> None:
        self._load(self.average)
        self.model.eval()

    def _load(self, state: dict[str, Tensor]) -> None:
        if state:
            self.model.load_state_dict(state)

    def state(self) -> dict[str, Tensor]:
        return {
            **{f"model/{k}": v for k, v in self.model.state_dict().items()},
            **{f"average/{k}": v for k, v in self.average.items()},
            **optimizer_tensors(self.optimizer),
        }

    def restore_(self, checkpoint: Checkpoint) -> None:
        self.model.load_state_dict(checkpoint.part("model/"))
        restore_optimizer_(self.optimizer, checkpoint.part("optimizer/"))
        for name, value in self.average.items():
            value.copy_(checkpoint.part("average/")[name])

    def suspect(self, images: Tensor) -> str:
        silent = [name for name, value in zip(self.layers, self.omegas, strict=False) if math.isinf(value)]
        if silent:
            return f"layer {silent[0]} does not fire: its Omega is infinite. A smaller lambda on the weights may help"
        return first_bad_layer(self.model, fitted(images, self.model))


def _sizes(model: nn.Module, side: int) -> contextlib.AbstractContextManager[None]:
    """While images are shrunk to `side` (0: they are not), the network takes what comes."""
    return any_size(model) if side else contextlib.nullcontext()


def _exact(output: Tensor) -> Tensor:
    """Losses are never taken in less than float32, and float64 stays."""
    return output.to(torch.promote_types(output.dtype, torch.float32))


def averaging(model: nn.Module) -> nn.Module:
    """DistributedDataParallel that leaves buffers alone; torch 2.13 has renamed the option."""
    ddp = nn.parallel.DistributedDataParallel
    known = inspect.signature(ddp.__init__).parameters
    option = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    wrapped: nn.Module = ddp(model, **{option: False})  # type: ignore[arg-type]
    return wrapped


def _optimizer(model: nn.Module, config: Stage1) -> torch.optim.SGD:
    """SGD with momentum; weight decay on weights, not on BatchNorm, biases and thresholds."""
    scaled = [layer.p for _, layer in rate_norm_layers(model) if isinstance(layer.p, nn.Parameter)]
    thresholds = {id(p) for p in scaled}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in thresholds]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in others if p.ndim > 1], "weight_decay": config.weight_decay, "share": 1.0},
        {"params": [p for p in others if p.ndim <= 1], "weight_decay": 0.0, "share": 1.0},
    ]
    if scaled:
        groups.append({"params": scaled, "weight_decay": 0.0, "share": THRESHOLD_SHARE})
    nesterov = config.nesterov and config.momentum > 0
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=nesterov, foreach=True)


def train_accuracy(
    model: nn.Module,
    data: ImageSet | Any,
    config: Stage1,
    *,
    normalise: Normalisation | None = None,
    run: RunFolder | None = None,
    show: bool = True,
    teacher: nn.Module | None = None,
) -> TrainingResult:
    """Stage 1. Trains `model` in place and leaves it in evaluation mode; `data` are training images, some held out.
    `teacher` is the network that `config.teacher` asks to answer like; it is put in evaluation mode and does not learn.
    """
    if (config.teacher is None) != (teacher is None):
        raise UsageError(
            "Training with a teacher: give both the network (teacher=) and its share of the loss (Stage1(teacher=0.5))."
        )
    train, held_out = hold_out(data, config.holdout, config.seed)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    asked = [words for _, words, value in config.asked_of_rates() if value is not None]
    if asked and not any(True for _ in rate_norm_layers(model)):
        raise TrainingError(f"Training with {asked[0]}: the network has no Rate Norm layer, so no rates.")
    set_p_(model, 1.0)
    batches, checks = stage_batches(train, held_out, config.batch_size, config.seed, normalise, config.augment)
    with global_batch_norm(model):
        stage = _AccuracyStage(model, batches, checks, config, _listened_to(teacher, model))
        at = run_stage(stage, run, config.checkpoint_minutes, show=show)
        stage.finish()
        reached = at.history[-1].get("accuracy")
        if config.settle is not None:
            settle_(model, batches, config.settle, config.epochs)
            reached = None if checks is None else accuracy(model, checks)
    return TrainingResult(reached, at.history, at.seconds)


def _listened_to(teacher: nn.Module | None, model: nn.Module) -> nn.Module | None:
    """Where and how the pupil is, and still."""
    if teacher is None:
        return None
    moved: nn.Module = teacher.to(device_of(model), memory_format=torch.channels_last)  # type: ignore[call-overload]
    return moved.eval().requires_grad_(False)


def stage_batches(
    train: ImageSet,
    held_out: ImageSet | None,
    batch_size: int,
    seed: int,
    normalise: Normalisation | None,
    augment: Augment | None = None,
) -> tuple[Batches, Batches | None]:
    """What a stage learns from and what it is checked on, each this process's part; full batches where possible."""
    here, full = world(), len(train) >= batch_size
    learn = Batches(train, batch_size, True, seed, augment, normalise, full, here.rank, here.size)
    if held_out is None:
        return learn, None
    return learn, Batches(held_out, CHECK_BATCH, normalise=normalise, rank=here.rank, world_size=here.size)


def held_out_count(holdout: float, images: int) -> int:
    """How many images `holdout` means: a share of them below 1, else a number."""
    if not 0 <= holdout < math.inf or (holdout >= 1 and holdout != int(holdout)):
        raise UsageError(
            f"Holding out images: holdout is {holdout}; it must be a share from 0 to 1, such as 0.1, or a number of "
            "images."
        )
    return int(holdout) if holdout >= 1 else round(holdout * images)


def hold_out(data: Any, holdout: float, seed: int) -> tuple[ImageSet, ImageSet | None]:
    """Training images and the held-out ones on which choices are made, of any data set that `from_dataset` takes."""
    data = from_dataset(data)
    count = held_out_count(holdout, len(data))
    if count == 0:
        return data, None
    if count >= len(data):
        raise DataError(
            f"Holding out {count} of {len(data)} images of {data.name!r}: nothing would be left to train on. "
            "Lower holdout, or give a share such as 0.1."
        )
    return split_holdout(data, count, seed)
