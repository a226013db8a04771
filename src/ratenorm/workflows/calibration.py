"""Calibration images for the command line: training images, transformed as the network was trained."""

from __future__ import annotations

import torch
from torch import Tensor

from ratenorm.data import Batches, split_holdout
from ratenorm.errors import UsageError
from ratenorm.io.networks import NetworkSpec
from ratenorm.workflows.data import DataConfig, images_to_choose_by, training_split


def calibration_images(data: DataConfig, spec: NetworkSpec, count: int, seed: int = 0) -> Tensor:
    """`count` training images, spread over the classes, normalised."""
    if count < 1:
        raise UsageError(f"Calibrating: {count} images were asked for; at least 1 image is needed.")
    images = data.of(spec).train()
    if count < len(images):
        images = split_holdout(images, count, seed)[1]
    return torch.cat([x for x, _ in Batches(images, 500, normalise=spec.normalisation)])


def calibration_and_held_out(
    data: DataConfig, spec: NetworkSpec, split: tuple[int, int] | None, count: int, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, str]:
    """Calibration images, other training images with labels to choose by, and what the latter are, as text.

    With a known split the network's training held out those to choose by, and calibration takes images it learned from.
    """
    images = data.train()
    if count < 1 or 2 * count > len(images):
        raise UsageError(
            f"Choosing images: {count} for calibration and as many to choose by were asked for; the set has "
            f"{len(images)}, and at least one of each is needed."
        )
    learned, held = training_split(images, split)
    if held is None:
        learned, chosen = split_holdout(images, count, seed + 1)
        what = f"{len(chosen):,} training images, which the network may have learned from"
    else:
        chosen, what = images_to_choose_by(images, split, count, seed)
    given = learned if count >= len(learned) else split_holdout(learned, count, seed)[1]
    normalise = spec.normalisation
    first = torch.cat([x for x, _ in Batches(given, 500, normalise=normalise)])
    second = list(Batches(chosen, 500, normalise=normalise))
    return first, torch.cat([x for x, _ in second]), torch.cat([y for _, y in second]), what
