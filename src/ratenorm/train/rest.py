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

from ratenorm.core.rate_norm import RateNorm
from ratenorm.distributed import total_with_gradient
from ratenorm.errors import TrainingError

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_PRODUCTS = (nn.Conv2d, nn.Linear)


@contextmanager
def resting(model: nn.Module, asked: bool = True) -> Iterator[list[Tensor]]:
    """While the block lasts, every forward pass appends, for each Rate Norm layer that stands directly behind a
    BatchNorm, convolution or linear layer, the mean square of the current at rest in thresholds. The first one is left
    out: the image is there from the first step on. Unless `asked`, nothing is appended and nothing is spent.
    """
    listener = _Listener()
    handles = []
    for module in model.modules() if asked else ():
        if isinstance(module, _BATCH_NORMS + _PRODUCTS):
            handles.append(module.register_forward_hook(listener.affine))
        elif isinstance(module, RateNorm):
            handles.append(module.register_forward_pre_hook(listener.rate_norm))
    try:
        yield listener.found
    finally:
        for handle in handles:
            handle.remove()


class _Listener:
    """Hears the layers of a forward pass one after the other."""

    def __init__(self) -> None:
        self.found: list[Tensor] = []
        self.last: tuple[Tensor, Tensor] | None = None  # of the layer before: its output, and that at rest
        self.astray = False  # a bias has gone on to something other than a layer that is heard: a pool, a sum
        self.first: nn.Module | None = None

    def _directly_before(self, x: Tensor) -> Tensor | None:
        """What x has at rest, where it comes straight from a layer that was heard."""
        last, self.last = self.last, None
        if last is None or last[0] is x:
            return None if last is None else last[1]
        self.astray = True
        return None

    def affine(self, module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        before = self._directly_before(inputs[0])
        if not isinstance(module, _BATCH_NORMS):
            bias = module.bias
        elif before is None and self.astray:
            bias = None  # some of its mean may be a bias from further before: not told apart here
        else:
            bias = at_rest(module, inputs[0], before)
        self.last = None if bias is None else (output, bias)

    def rate_norm(self, module: Any, inputs: tuple[Tensor, ...]) -> None:
        bias = self._directly_before(inputs[0])
        self.first = self.first or module
        if bias is not None and module is not self.first:
            self.found.append((bias / module.threshold.detach()).square().mean())


def at_rest(norm: nn.BatchNorm2d | nn.BatchNorm1d, x: Tensor, before: Tensor | None = None) -> Tensor:
    """beta - gamma (mu - b) / sigma for each channel: what BatchNorm makes of no input but the bias b of the layer
    `before`. mu is that of the batch of all processes, through which weights can lower it. sigma is the running one,
    taken as it stands: to the scale of the weights, which BatchNorm does not care about, the gradient is a little
    weight decay.
    """
    if norm.running_var is None:
        raise TrainingError(
            "Training with a weight on the current at rest: a BatchNorm keeps no running statistics, so it has "
            "none that could be told. Build it with track_running_stats=True."
        )
    exact = torch.promote_types(x.dtype, torch.float32)  # a mean in bfloat16 would keep three digits
    means = x.mean(list(range(2, x.ndim)), dtype=exact) if x.ndim > 2 else x.to(exact)  # [B, C]
    own = means.sum(0, dtype=torch.float64)
    summed = total_with_gradient(torch.cat([own, own.new_tensor([len(x)])]))
    mean = (summed[:-1] / summed[-1]).to(exact)
    pulled = (-mean if before is None else before - mean) * (norm.running_var + norm.eps).rsqrt()
    return norm.bias + norm.weight * pulled if norm.affine else pulled
