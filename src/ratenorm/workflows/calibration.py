"""Calibration images for the command line: training images, transformed as the network was trained."""

from __future__ import annotations

import torch
from torch import Tensor

from ratenorm.data import Batches, split_holdout
from ratenorm.errors import UsageError
from ratenorm.io.networks import NetworkSpec
from ratenorm.workflows.train import DataConfig


def calibration_images(data: DataConfig, spec: NetworkSpec, count: int, seed: int = 0) -> Tensor:
    """`count` training images, spread over the classes, normalised."""
    if count < 1:
        raise UsageError(f"Calibrating: --images is {count}; at least 1 image is needed.")
    images = data.train()
    if count < len(images):
        images = split_holdout(images, count, seed)[1]
    return torch.cat([x for x, _ in Batches(images, 500, normalise=spec.normalisation)])


def calibration_and_held_out(
    data: DataConfig, spec: NetworkSpec, count: int, held_out: int, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Calibration images, and other training images with labels to choose by."""
    images = data.train()
    if count < 1 or held_out < 1 or count + held_out > len(images):
        raise UsageError(
            f"Choosing images: {count} for calibration and {held_out} to choose by were asked for; the set has "
            f"{len(images)} and at least one of each is needed."
        )
    rest, chosen = split_holdout(images, held_out, seed + 1)
    given = rest if count == len(rest) else split_holdout(rest, count, seed)[1]
    normalise = spec.normalisation
    first = torch.cat([x for x, _ in Batches(given, 500, normalise=normalise)])
    second = list(Batches(chosen, 500, normalise=normalise))
    return first, torch.cat([x for x, _ in second]), torch.cat([y for _, y in second])
