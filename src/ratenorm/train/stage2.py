"""Stage 2 (Eq. 13): weights frozen, one p' shared by all layers learns to answer fast; the teacher is the
network at p = 1.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import Trained as ThresholdsOfTraining
from ratenorm.core.losses import latency_loss
from ratenorm.core.rate_norm import RateNorm, rate_norm_layers, set_p_
from ratenorm.data import Batches, ImageSet, Normalisation
from ratenorm.distributed import total, world
from ratenorm.errors import AccuracyWarning, TrainingError, UsageError
from ratenorm.io.run_folder import RunFolder
from ratenorm.simulate.evaluate import evaluate
from ratenorm.train.checkpoint import Checkpoint, optimizer_tensors, restore_optimizer_
from ratenorm.train.choice import LAMBDAS, Rule
from ratenorm.train.config import Stage2
from ratenorm.train.loop import accuracy, device_of, first_bad_layer, fitted, run_stage
from ratenorm.train.rates import omegas, watched
from ratenorm.train.stage1 import TrainingResult, hold_out, stage_batches

CHOICE_IMAGES = 1000  # held-out images that choose lambda
CHOICE_BATCH = 100
CHOICE_STEPS = 128
ACCEPTED_LOSS = 0.01  # a stage that loses more says so


class _LatencyStage:
    def __init__(
        self, model: nn.Module, train: Batches, held_out: Batches | None, config: Stage2, p_prime: Tensor, name: str
    ) -> None:
        self.model, self.batches, self.held_out, self.config = model, train, held_out, config
        self.name, self.epochs = name, config.epochs
        self.lam = 0.0 if config.lam is None else config.lam
        self.layers = dict(rate_norm_layers(model))
        self.p_prime = nn.Parameter(p_prime.clone())  # [] shared, or [L] one a layer
        self.optimizer = torch.optim.Adam([self.p_prime], lr=config.lr)

    def apply_p(self, p: Tensor) -> None:
        if p.ndim == 0:
            set_p_(self.model, p)
            return
        for layer, own in zip(self.layers.values(), p.unbind(), strict=True):
            layer.p = own

    def step(self, images: Tensor, labels: Tensor, step: int) -> dict[str, float]:
        images = fitted(images, self.model)
        with torch.no_grad():
            set_p_(self.model, 1.0)
            teacher = self.model(images)
        self.apply_p(self.p_prime.sigmoid())
        with watched(self.layers.values()) as sums:
            student = self.model(images)
        found = omegas(sums)
        loss = latency_loss(teacher, student, found, self.lam)
        value = float(total(loss.detach())) / world().size
        if math.isfinite(value):
            self.optimizer.zero_grad()
            loss.backward()
            assert self.p_prime.grad is not None
            self.p_prime.grad.copy_(total(self.p_prime.grad) / world().size)
            self.optimizer.step()
        self.apply_p(self.p_prime.detach().sigmoid())
        return {
            "loss": value,
            "omega": float(torch.stack(found).mean().detach()),
            "p": float(self.p_prime.detach().sigmoid().mean()),
        }

    def end_of_epoch(self, epoch: int) -> dict[str, float]:
        return {} if self.held_out is None else {"accuracy": accuracy(self.model, self.held_out)}

    def state(self) -> dict[str, Tensor]:
        return {"p_prime": self.p_prime.detach(), **optimizer_tensors(self.optimizer)}

    def restore_(self, checkpoint: Checkpoint) -> None:
        with torch.no_grad():
            self.p_prime.copy_(checkpoint.tensors["p_prime"])
        restore_optimizer_(self.optimizer, checkpoint.part("optimizer/"))
        self.apply_p(self.p_prime.detach().sigmoid())

    def suspect(self, images: Tensor) -> str:
        silent = "no layer fires" if not self.layers else first_bad_layer(self.model, fitted(images, self.model))
        return f"p = {self.p_prime.detach().sigmoid().tolist()}, {silent}"


def train_latency(
    model: nn.Module,
    data: ImageSet | Any,
    config: Stage2 | None = None,
    *,
    normalise: Normalisation | None = None,
    run: RunFolder | None = None,
    show: bool = True,
) -> TrainingResult:
    """Stage 2: train the p of the Rate Norm layers, and nothing else; labels are used for the choice of lambda only.

    BatchNorm stands in evaluation mode and the running maxima are frozen explicitly.

    Args:
        model: A network with Rate Norm layers, as stage 1 left it.
        data: Training images with labels; some are held out.
        config: The settings; by default lambda is chosen on the held-out images, with p = 1 among the candidates.
        normalise: The transform of the images.
        run: Where checkpoints and metrics are kept; a training that was stopped resumes there.
        show: Show a progress bar.

    Returns:
        Held-out accuracy of the analog network with the trained thresholds, history, and what was tried.

    Raises:
        TrainingError: If the network has no Rate Norm layer, or the training diverges.
        UsageError: If a setting is out of range, or a layer is quantised.
    """
    config = Stage2() if config is None else config
    layers = dict(rate_norm_layers(model))
    if not layers:
        raise TrainingError(
            "Training for latency: the network has no Rate Norm layer, so there is no p to train. Build it "
            "with RateNorm, or convert a ReLU network with the method Latency."
        )
    if quantised := [name for name, layer in layers.items() if layer.levels is not None]:
        raise UsageError(
            f"Training for latency: layer {quantised[0]!r} is quantised, and its p is trained with the weights. Leave "
            "stage 2 out, or build the network without levels."
        )
    train, held_out = hold_out(data, config.holdout, config.seed)
    if config.images is not None and config.images < len(train):
        train = hold_out(train, config.images, config.seed)[1] or train
    batches, checks = stage_batches(train, held_out, config.batch_size, config.seed, normalise)
    grads = {name: p.requires_grad for name, p in model.named_parameters()}
    frozen = {name: layer.frozen for name, layer in layers.items()}
    model.eval().requires_grad_(False)
    for layer in layers.values():
        layer.freeze_()
    try:
        search = _Search(model, (batches, checks), config, run, show)
        if config.lam is not None:
            search.train(config.lam, "")
            choice = None
        else:
            assert held_out is not None  # the configuration has seen to it
            some = held_out.subset(range(min(CHOICE_IMAGES, len(held_out))))
            choice = search.choose(
                Batches(some, CHOICE_BATCH, normalise=normalise, rank=world().rank, world_size=world().size)
            )
    finally:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(grads[name])
        for name, layer in layers.items():
            layer.p = layer.p.detach().clone()
            layer.freeze_(frozen[name])
    found = None if checks is None else accuracy(model, checks)
    if checks is not None and choice is None:
        _warn_of_loss(model, checks, found or 0.0, config)
    return TrainingResult(found, search.history, search.seconds, choice)


def _warn_of_loss(model: nn.Module, checks: Batches, found: float, config: Stage2) -> None:
    """Say aloud where the thresholds cut off more than a point."""
    layers = [layer for _, layer in rate_norm_layers(model)]
    own = [layer.p for layer in layers]
    set_p_(model, 1.0)
    before = accuracy(model, checks)
    for layer, p in zip(layers, own, strict=True):
        layer.p = p
    if before - found > ACCEPTED_LOSS:
        warnings.warn(
            f"Stage 2 with lam = {config.lam:g} leaves {100 * found:.2f} % of the held-out images right; stage 1 had "
            f"{100 * before:.2f} %. Thresholds cut off what no number of steps brings back. Use a smaller lam, or "
            "lam=None to choose it on held-out images.",
            AccuracyWarning,
            stacklevel=3,
        )


class _Search:
    """Trains p for one lambda or several."""

    def __init__(
        self,
        model: nn.Module,
        batches: tuple[Batches, Batches | None],
        config: Stage2,
        run: RunFolder | None,
        show: bool,
    ) -> None:
        self.model, self.config, self.folder, self.show = model, config, run, show
        self.batches, self.checks = batches
        self.history: list[dict[str, Any]] = []
        self.seconds = 0.0

    def train(self, lam: float, suffix: str) -> None:
        """Train p from its start, one shared p' and then, where asked for, one for each layer."""
        config = replace(self.config, lam=lam)
        p_prime = torch.tensor(config.start)
        for name in ("stage2", "stage2-per-layer")[: 2 if config.per_layer else 1]:
            if name != "stage2":
                p_prime = p_prime.expand(len(dict(rate_norm_layers(self.model))))
            stage = _LatencyStage(self.model, self.batches, self.checks, config, p_prime, name + suffix)
            at = run_stage(stage, self.folder, config.checkpoint_minutes, show=self.show)
            p_prime = stage.p_prime.detach()
            self.history = self.history + at.history
            self.seconds += at.seconds
        stage.apply_p(p_prime.sigmoid())

    def choose(self, checks: Batches) -> dict[str, Any]:
        """Train for every lambda, and leave the p that the rule prefers."""
        rule = Rule(len(checks.images), steps=CHOICE_STEPS)
        layers = [layer for _, layer in rate_norm_layers(self.model)]
        tried: list[dict[str, Any]] = []
        found: list[list[Tensor]] = []
        for lam in (*LAMBDAS, 0.0):
            if lam:
                self.train(lam, f"-lambda-{lam:g}")
            else:
                set_p_(self.model, 1.0)
            found.append([layer.p.detach().clone() for layer in layers])
            own = {"lam": lam, "per_layer": self.config.per_layer and lam > 0, "p": [float(p) for p in found[-1]]}
            tried.append({**own, "clipped": accuracy(self.model, checks), "accuracy": None})
        ann = tried[-1]["clipped"]
        for only_whole in (True, False):
            if not only_whole and any(rule.arrival(ann, one["accuracy"] or []) is not None for one in tried):
                break
            for one, p in zip(tried, found, strict=True):
                worth = rule.whole(ann, one) if only_whole else not rule.hopeless(ann, one["clipped"])
                if worth and one["accuracy"] is None:
                    self._set(layers, p)
                    one["accuracy"] = self._spiking_accuracy(checks, rule.steps)
        best = rule.winner(ann, tried)
        self._set(layers, found[best])
        return {
            "rule": str(rule),
            "images": len(checks.images),
            "ann_accuracy": ann,
            "tried": tried,
            "chosen": best,
        }

    @staticmethod
    def _set(layers: list[RateNorm], values: list[Tensor]) -> None:
        for layer, p in zip(layers, values, strict=True):
            layer.p = p.clone()

    def _spiking_accuracy(self, checks: Batches, steps: int) -> list[float]:
        """Of the converted network from v(0) = 0, after each step."""
        device = device_of(self.model)
        example = next(iter(checks))[0][:1]
        net = convert(self.model.cpu(), ThresholdsOfTraining(), example=example).net
        self.model.to(device)
        return evaluate(net, checks, steps, fit_images=0).accuracy
