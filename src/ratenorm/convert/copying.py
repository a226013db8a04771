"""A copy of a stranger's network that can be traced: without its wrappers, on the CPU, in evaluation mode."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm.core.rate_norm import RateNorm

HALF = (torch.float16, torch.bfloat16)


def own_copy(model: nn.Module) -> nn.Module:
    """A copy in evaluation mode. Numbers of half precision are widened to float32. The model itself is not changed."""
    model = unwrapped(model)
    # Weights that a hook computes (weight_norm, pruning) are results of autograd, which deepcopy refuses to copy.
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    copied = copy.deepcopy(model, memo)
    for path, module in list(copied.named_modules()):
        if isinstance(module, RateNorm):
            module.levels = None  # the analog network is the limit of many levels
        inner = unwrapped(module)
        if inner is not module:
            parent, _, name = path.rpartition(".")
            setattr(copied.get_submodule(parent), name, inner)
    copied = copied.cpu().eval()
    if any(p.dtype in HALF for p in copied.parameters()):
        copied = copied.float()
    return copied


def unwrapped(model: nn.Module) -> nn.Module:
    """The network inside what torch wraps around networks: DataParallel, torch.compile, averaged weights."""
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel, torch.optim.swa_utils.AveragedModel)
    while True:
        if isinstance(model, wrappers):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model
