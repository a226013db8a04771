"""Calibration images for the command line: training images, transformed as the network was trained."""

from __future__ import annotations

import torch
from torch import Tensor

from ratenorm.data import Batches, split_holdout
from ratenorm.errors import UsageError
from ratenorm.experiments.training import DataConfig
from ratenorm.export.network import NetworkSpec


def calibration_images(data: DataConfig, spec: NetworkSpec, count: int, seed: int = 0) -> Tensor:
    """`count` training images, spread over the classes, normalised."""
    if count < 1:
        raise UsageError(f"Calibrating: --images is {count}; at least 1 image is needed.")
    images = data.train()
    if count < len(images):
        images = split_holdout(images, count, seed)[1]
    return torch.cat([x for x, _ in Batches(images, 500, normalise=spec.normalisation)])
