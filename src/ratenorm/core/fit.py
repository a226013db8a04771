"""The K curve (Eq. 7): how far the firing rates are from the rates they converge to, and its bound (Theorem 2).

| paper       | here     | shape                   |
|-------------|----------|-------------------------|
| r^          | analog   | [B, …]                  |
| r(t)        | rate     | [B, …], spikes so far / t |
| K(r^, r(t)) | k_value  | []                      |

    K = |r(t) - r^|^2 / |r^|^2  <  2 Omega / t

The bound is a theorem for constant input current and v(0) = 0. Deeper layers receive spike trains; there it is a guide.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ratenorm.core.losses import omega


def k_value(analog: Tensor, rate: Tensor) -> Tensor:
    """K(r^, r) over all neurons of a layer and a batch. Where r^ is zero everywhere: 0 if r is too, else infinity."""
    error, power = (rate - analog).square().sum(), analog.square().sum()
    silent = torch.where(error > 0, torch.inf, 0.0).to(error.dtype)
    return torch.where(power > 0, error / power.clamp_min(torch.finfo(power.dtype).tiny), silent)


def k_curve(analog: Tensor, spikes: Tensor) -> Tensor:
    """K after each step of a spike train `spikes` [T, B, …] against `analog` [B, …]: [T]."""
    steps = torch.arange(1, len(spikes) + 1, dtype=analog.dtype, device=spikes.device)
    rates = spikes.cumsum(0) / steps.view(-1, *[1] * analog.ndim)
    return torch.stack([k_value(analog, rate) for rate in rates])


def k_bound(analog: Tensor, steps: int) -> Tensor:
    """2 Omega / t for t = 1 .. steps (Theorem 2): [T]."""
    return 2.0 * omega(analog) / torch.arange(1, steps + 1, dtype=analog.dtype, device=analog.device)
