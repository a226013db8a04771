"""BatchNorm whose statistics are those of the whole batch, spread over several processes, on any device.

torch's SyncBatchNorm works on GPUs only. With this one, N processes compute what one would: the same losses, the same
running statistics. Sums are taken over each image by itself, and over the images in float64, forwards and backwards:
they do not depend on how a batch is cut into parts (docs/scaling.md).

| symbol   | here                  | meaning                                           |
|----------|-----------------------|---------------------------------------------------|
| n        | count                 | values of a channel in the whole batch            |
| mu       | mean                  | sum x / n                                         |
| sigma^2  | var                   | sum (x - mu)^2 / n                                |
| x^       | (x - mean) / sigma    | y = weight x^ + bias                              |
| dL/dx    | backward              | weight / sigma (g - mean(g) - x^ mean(g x^)), g = dL/dy |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm.distributed import total, world


def _form(x: Tensor) -> tuple[int, ...]:
    """Of one number for each channel, beside x."""
    return (1, -1, *[1] * (x.ndim - 2))


def _sum(x: Tensor) -> Tensor:
    """Over everything but the channels: each image in its own kind, the images in float64. [C]"""
    return (x.sum(list(range(2, x.ndim))) if x.ndim > 2 else x).sum(0, dtype=torch.float64)


def statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, biased variance and count of every channel over all processes, in one exchange; float64 [C]."""
    own = torch.full((x.shape[1],), x.numel() / x.shape[1], dtype=torch.float64, device=x.device)
    near = (_sum(x) / own).to(x.dtype)  # squares are taken from here: no cancellation where |mu| is far above sigma
    away = x - near.view(_form(x))
    first, near = _sum(away), near.double()  # what rounding has left of it
    sums = torch.stack([own * near + first, _sum(away.square_()) + near * (2 * first + own * near), own])
    summed, squared, count = total(sums)
    mean = summed / count
    return mean, (squared / count - mean.square()).clamp_min(0.0), count


class _Normalise(torch.autograd.Function):
    """y = weight (x - mu) / sigma + bias, with mu and sigma functions of the x of all processes."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, count: Tensor, eps: float
    ) -> Tensor:
        form = _form(x)
        inverse = (var + eps).rsqrt()
        ctx.save_for_backward(x, weight, mean, inverse, count)
        scale = (weight.double() * inverse).to(x.dtype)
        # the mean first: what is close to it, and to the kink of the activation behind, is then exact
        return (x - mean.to(x.dtype).view(form)).mul_(scale.view(form)).add_(bias.to(x.dtype).view(form))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight, mean, inverse, count = ctx.saved_tensors
        grad: Tensor = grads[0]
        form = _form(x)
        unit = (x - mean.to(x.dtype).view(form)) * inverse.to(x.dtype).view(form)  # x^
        own = torch.stack([_sum(grad), _sum(grad * unit)])
        plain, along = (total(own) / count).to(x.dtype)
        scale = (weight.double() * inverse).to(x.dtype).view(form)
        grad_x = (grad - plain.view(form)).sub_(unit.mul_(along.view(form))).mul_(scale)
        # weight and bias are everybody's: their gradients are averaged with all others
        return grad_x, own[1].to(weight.dtype), own[0].to(weight.dtype), None, None, None, None


def _forward(module: nn.modules.batchnorm._BatchNorm, x: Tensor) -> Tensor:
    if not module.training:
        return type(module).forward(module, x)
    if x.dtype == torch.bfloat16:  # its sums would have three digits; torch's own BatchNorm takes them in float32 too
        return _forward(module, x.float()).to(x.dtype)
    with torch.no_grad():
        mean, var, count = statistics(x)
        if module.track_running_stats and module.running_mean is not None and module.running_var is not None:
            assert module.num_batches_tracked is not None
            module.num_batches_tracked.add_(1)
            momentum = module.momentum if module.momentum is not None else 1.0 / float(module.num_batches_tracked)
            kind = module.running_mean.dtype
            module.running_mean.lerp_(mean.to(kind), momentum)
            module.running_var.lerp_((var * (count / (count - 1))).to(kind), momentum)
    weight = module.weight if module.affine else torch.ones(x.shape[1], dtype=x.dtype, device=x.device)
    bias = module.bias if module.affine else torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
    y: Tensor = _Normalise.apply(x, weight, bias, mean, var, count, module.eps)
    return y


@contextlib.contextmanager
def global_batch_norm(model: nn.Module) -> Iterator[None]:
    """Within it every BatchNorm of the model uses the statistics of all processes; nothing changes for one process."""
    layers = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)] if world().size > 1 else []
    for layer in layers:
        layer.__dict__["forward"] = partial(_forward, layer)
    try:
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)
