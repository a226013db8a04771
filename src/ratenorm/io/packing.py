"""Weights in 16 bits without loss: whole numbers times a power of two for each output channel.

`convert` rounds weights to such a grid, so nothing changes: `unpacked(packed(weight))` equals the weight bit for bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 2**15 - 1
WHOLE, UNIT = "16", "unit"  # what a packed tensor's two parts are called


def packed(weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """Whole numbers [C, ...] and units [C]; None where the weights lie on no such grid."""
    if weight.dtype != torch.float32 or weight.ndim < 2 or not bool(torch.isfinite(weight).all()):
        return None
    rows = weight.flatten(1).double()
    largest = rows.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny)
    unit = torch.exp2(torch.ceil(torch.log2(largest / LARGEST)))
    whole = rows / unit.unsqueeze(1)
    if not torch.equal(whole, whole.round()) or float(whole.abs().amax()) > LARGEST:
        return None
    unit = unit.float()
    if not torch.equal((whole.float() * unit.unsqueeze(1)).view(weight.shape), weight):
        return None  # a unit below what float32 holds
    return whole.to(torch.int16).view(weight.shape), unit


def unpacked(whole: Tensor, unit: Tensor) -> Tensor:
    """The weights. Raises ValueError where the parts do not belong together."""
    if whole.dtype != torch.int16 or unit.dtype != torch.float32 or unit.shape != whole.shape[:1] or whole.ndim < 2:
        raise ValueError(f"packed weights of {whole.dtype} and {list(whole.shape)} with units of {list(unit.shape)}")
    if not bool(((unit > 0) & torch.isfinite(unit)).all()):
        raise ValueError("units of packed weights must be positive numbers")
    return whole.float() * unit.view(-1, *[1] * (whole.ndim - 1))
