"""The Rate Inference Loss and the losses of the two stages of training.

| paper                         | here                | equation     |
|-------------------------------|---------------------|--------------|
| Omega = |r|_1 / |r|_2^2       | omega               | Theorem 2    |
| mean_l Omega_l                | rate_inference_loss | Eq. 9        |
| L(r*_L, y)                    | accuracy_loss       | Eq. 12, stage 1 |
| 1 - cos(r*_L, r'_L) + lam RIL | latency_loss        | Eq. 13, stage 2 |
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F


def omega(rates: Tensor) -> Tensor:
    """Omega = |r|_1 / |r|_2^2 over all rates of a layer and a batch.

    Taken over the whole batch it is mean(r) / mean(r^2): it depends on the distribution of the rates alone, not on the
    batch size or the width of the layer. A layer in which nothing fires has no Omega; infinity says that it never
    answers.
    """
    return omega_of_sums(rates.abs().sum(), rates.square().sum())


def omega_of_sums(total: Tensor, power: Tensor) -> Tensor:
    """Omega from |r|_1 and |r|_2^2, wherever these were summed."""
    return torch.where(power > 0, total / power.clamp_min(torch.finfo(power.dtype).tiny), torch.inf)


def rate_inference_loss(omegas: Iterable[Tensor]) -> Tensor:
    """The mean of Omega over the layers, the term that Eq. 9 multiplies by lambda."""
    return torch.stack(list(omegas)).mean()


def accuracy_loss(output: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Stage 1: cross entropy of the Rate-Norm network at p = 1."""
    return F.cross_entropy(output, labels, label_smoothing=label_smoothing)


def latency_loss(teacher: Tensor, student: Tensor, omegas: Iterable[Tensor], lam: float) -> Tensor:
    """Stage 2 (Eq. 13): stay parallel to the output at p = 1, and lower the mean Omega."""
    similarity = F.cosine_similarity(teacher.flatten(1), student.flatten(1), dim=1).mean()
    return 1.0 - similarity + lam * rate_inference_loss(omegas)
