"""Omega of every Rate Norm layer in a forward pass, with gradient: what the Rate Inference Loss is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm.core.losses import omega_of_sums
from ratenorm.core.rate_norm import RateNorm
from ratenorm.distributed import total_with_gradient


@contextmanager
def watched(layers: Iterable[RateNorm]) -> Iterator[list[Tensor]]:
    """While the block lasts, every forward pass appends |r|_1 and |r|_2^2 of each layer, in order."""
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


def _keep_sums(found: list[Tensor]) -> Any:
    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        rates = output if module.output == "rate" else output / module.threshold  # type: ignore[operator]
        # each image by itself, the images in float64: Omega does not depend on how many processes share the batch
        each = torch.stack([rates.abs().flatten(1).sum(1), rates.square().flatten(1).sum(1)])
        found.append(each.sum(1, dtype=torch.float64))

    return hook
