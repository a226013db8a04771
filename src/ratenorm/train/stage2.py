"""Stage 2 (Eq. 13): weights frozen, one p' shared by all layers learns to answer fast; the teacher is the
network at p = 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ratenorm.core.losses import latency_loss
from ratenorm.core.rate_norm import rate_norm_layers, set_p_
from ratenorm.data import Batches, ImageSet, Normalisation
from ratenorm.distributed import total, world
from ratenorm.errors import TrainingError, UsageError
from ratenorm.io.run_folder import RunFolder
from ratenorm.train.checkpoint import Checkpoint, optimizer_tensors, restore_optimizer_
from ratenorm.train.config import Stage2
from ratenorm.train.loop import accuracy, first_bad_layer, fitted, run_stage
from ratenorm.train.rates import omegas, watched
from ratenorm.train.stage1 import Trained, hold_out, stage_batches


class _LatencyStage:
    def __init__(
        self, model: nn.Module, train: Batches, held_out: Batches | None, config: Stage2, p_prime: Tensor, name: str
    ) -> None:
        self.model, self.batches, self.held_out, self.config = model, train, held_out, config
        self.name, self.epochs = name, config.epochs
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
        loss = latency_loss(teacher, student, found, self.config.lam)
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
    data: ImageSet,
    config: Stage2,
    *,
    normalise: Normalisation | None = None,
    run: RunFolder | None = None,
    show: bool = True,
) -> Trained:
    """Stage 2. Changes nothing of `model` but the p of its Rate Norm layers; labels are not used.

    BatchNorm stands in evaluation mode and the running maxima are frozen explicitly.
    """
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
        stage = _LatencyStage(model, batches, checks, config, torch.tensor(config.start), "stage2")
        at = run_stage(stage, run, config.checkpoint_minutes, show=show)
        history, seconds = at.history, at.seconds
        if config.per_layer:
            start = stage.p_prime.detach().expand(len(layers))
            stage = _LatencyStage(model, batches, checks, config, start, "stage2-per-layer")
            at = run_stage(stage, run, config.checkpoint_minutes, show=show)
            history, seconds = history + at.history, seconds + at.seconds
        stage.apply_p(stage.p_prime.detach().sigmoid())
    finally:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(grads[name])
        for name, layer in layers.items():
            layer.p = layer.p.detach().clone()
            layer.freeze_(frozen[name])
    return Trained(history[-1].get("accuracy"), history, seconds)
