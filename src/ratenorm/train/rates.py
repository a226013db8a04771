"""Omega of every Rate Norm layer in a forward pass, and the mean rate of all, with gradient: what can be asked of the
weights besides accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm.core.losses import omega_of_sums
from ratenorm.core.rate_norm import RateNorm
from ratenorm.data.seeds import generator_for
from ratenorm.distributed import total_with_gradient
from ratenorm.train.config import Stage1


@contextmanager
def watched(layers: Iterable[RateNorm]) -> Iterator[list[Tensor]]:
    """While the block lasts, every forward pass appends |r|_1, |r|_2^2 and the number of rates of each layer."""
    sums: list[Tensor] = []
    handles = [layer.register_forward_hook(_keep_sums(sums)) for layer in layers]
    try:
        yield sums
    finally:
        for handle in handles:
            handle.remove()


def omegas(sums: list[Tensor]) -> list[Tensor]:
    """Omega of each layer over the batch of all processes."""
    return [omega_of_sums(s[0], s[1]) for s in total_with_gradient(torch.stack(sums))]


def mean_rate(sums: list[Tensor]) -> Tensor:
    """Spikes a neuron and step to come, over all layers and the batch of all processes: what energy is made of."""
    summed: Tensor = total_with_gradient(torch.stack(sums)).sum(0)
    return summed[0] / summed[2]


def steps_at(config: Stage1, step: int) -> int | None:
    """After how many steps of its spiking neurons a batch sees the network. What is missing by then is in proportion to
    1/T, so that is drawn evenly, from none to that of `config.steps`: the network learns to answer early and late.
    """
    if config.steps is None:
        return None
    share = float(torch.rand((), generator=generator_for(config.seed, "steps", step), dtype=torch.float64))
    return math.floor(config.steps / (1.0 - share))


@contextmanager
def after_steps(layers: Iterable[RateNorm], steps: int | None) -> Iterator[None]:
    """While the block lasts, layers hand on the rates of so many steps."""
    changed = list(layers)
    for layer in changed:
        layer.steps = steps
    try:
        yield
    finally:
        for layer in changed:
            layer.steps = None


def _keep_sums(found: list[Tensor]) -> Any:
    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        unit = module.threshold.to(output.dtype) if module.output == "activation" else output.new_ones(())  # type: ignore[operator]
        # each image by itself, the images in float64: Omega does not depend on how many processes share the batch
        sums = RateSums.apply(output, unit).sum(1, dtype=torch.float64)
        found.append(torch.cat([sums, sums.new_tensor([output.numel()])]))

    return hook


class RateSums(torch.autograd.Function):
    """|r|_1 and |r|_2^2 of every image for rates r = z / unit that a Rate Norm layer has clipped, so never negative.

    Written out because autograd's own way, a temporary a step, made the whole training half as long again. Where z is 0
    the gradient is that of the side z > 0; the clip that z came from lets none of it through, unless z is 0 for want of
    steps: such neurons learn to stay silent.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, unit: Tensor) -> Tensor:
        ctx.save_for_backward(z, unit)
        within = tuple(range(1, z.ndim))
        exact = torch.promote_types(z.dtype, torch.float32)  # a sum in bfloat16 would keep three digits
        norm = torch.linalg.vector_norm(z, 2, within, dtype=exact)
        return torch.stack([z.sum(within, dtype=exact) / unit, (norm / unit).square()])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor | None]:
        z, unit = ctx.saved_tensors
        total, power = (g.reshape(-1, *(1,) * (z.ndim - 1)) for g in grads[0])
        by_z = (z * (2.0 * power / unit / unit).to(z.dtype)).add_((total / unit).to(z.dtype))
        if not ctx.needs_input_grad[1]:
            return by_z, None
        return by_z, -(by_z * z).sum().reshape(unit.shape) / unit  # r depends on z / unit alone
