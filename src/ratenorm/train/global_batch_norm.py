"""BatchNorm whose statistics are those of the whole batch, spread over several processes, on any device.

torch's SyncBatchNorm works on GPUs only. With this one, N processes compute what one would: the same losses, the same
running statistics.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from ratenorm.distributed import total_with_gradient, world


def _forward(module: nn.modules.batchnorm._BatchNorm, x: Tensor) -> Tensor:
    if not module.training:
        return type(module).forward(module, x)
    over = [0, *range(2, x.ndim)]
    form = (1, -1, *[1] * (x.ndim - 2))
    sums = torch.stack([x.sum(over), x.square().sum(over), torch.full_like(x.sum(over), x.numel() / x.shape[1])])
    summed = total_with_gradient(sums)
    count = summed[2].detach()
    mean = summed[0] / count
    # E x^2 - (E x)^2 in one exchange; BatchNorm inputs are of order one, where the cancellation is harmless
    var = (summed[1] / count - mean.square()).clamp_min(0.0)
    if module.track_running_stats and module.running_mean is not None and module.running_var is not None:
        with torch.no_grad():
            assert module.num_batches_tracked is not None
            module.num_batches_tracked.add_(1)
            momentum = module.momentum if module.momentum is not None else 1.0 / float(module.num_batches_tracked)
            module.running_mean.lerp_(mean, momentum)
            module.running_var.lerp_(var * (count / (count - 1)), momentum)
    y = (x - mean.view(form)) * torch.rsqrt(var + module.eps).view(form)
    return y * module.weight.view(form) + module.bias.view(form) if module.affine else y


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
