"""The current at rest: what drives a neuron while no neuron before it fires, its layer's bias with BatchNorm in it.

Spikes take some steps to come through a deep network. Until they do, and after it for what has come late, a layer sees
the bias alone: with a lag of D steps and a bias b, the potential is wrong by D b, spikes that it causes are never taken
back, and the error of a rate falls with 1/T only. Where nothing is at rest, a network that gets its input D steps late
answers D steps late and is otherwise right. So the weights can be asked to do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm.core.rate_norm import RateNorm, rate_norm_layers
from ratenorm.distributed import total_with_gradient, world
from ratenorm.errors import TrainingError

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_PRODUCTS = (nn.Conv2d, nn.Linear)


@contextmanager
def resting(model: nn.Module, asked: bool = True) -> Iterator[list[Tensor]]:
    """While the block lasts, every forward pass appends, for each Rate Norm layer that stands directly behind a
    BatchNorm, convolution or linear layer, the mean square of the current at rest in thresholds. The first one is left
    out: the image is there from the first step on. Unless `asked`, nothing is appended and nothing is spent.
    """
    found: list[Tensor] = []
    last: list[tuple[Tensor, Tensor]] = []  # of the module before: its output, the current at rest of its channels
    first = next((layer for _, layer in rate_norm_layers(model)), None)

    def keep(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        before = last[0][1] if last and last[0][0] is inputs[0] else None
        last.clear()
        bias = at_rest(module, inputs[0], before) if isinstance(module, _BATCH_NORMS) else module.bias
        if bias is not None:
            last.append((output, bias))

    def collect(module: Any, inputs: tuple[Tensor, ...]) -> None:
        if last and last[0][0] is inputs[0] and module is not first:
            found.append((last[0][1] / module.threshold.detach()).square().mean())

    handles = []
    for module in model.modules() if asked else ():
        if isinstance(module, _BATCH_NORMS + _PRODUCTS):
            handles.append(module.register_forward_hook(keep))
        elif isinstance(module, RateNorm):
            handles.append(module.register_forward_pre_hook(collect))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def at_rest(norm: nn.BatchNorm2d | nn.BatchNorm1d, x: Tensor, before: Tensor | None = None) -> Tensor:
    """beta - gamma (mu - b) / sigma for each channel: what BatchNorm makes of no input but the bias b of the layer
    `before`. mu is that of the batch of all processes, through which weights can lower it; sigma is the running one.
    """
    if norm.running_var is None:
        raise TrainingError(
            "Training with a weight on the current at rest: a BatchNorm keeps no running statistics, so it has "
            "none that could be told. Build it with track_running_stats=True."
        )
    exact = torch.promote_types(x.dtype, torch.float32)  # a mean in bfloat16 would keep three digits
    means = x.mean(list(range(2, x.ndim)), dtype=exact) if x.ndim > 2 else x.to(exact)  # [B, C]
    mean = total_with_gradient(means.sum(0, dtype=torch.float64)) / (len(x) * world().size)  # shards are equal
    away = -mean.to(exact) if before is None else before - mean.to(exact)
    pulled = away * (norm.running_var + norm.eps).rsqrt()
    return norm.bias + norm.weight * pulled if norm.affine else pulled
