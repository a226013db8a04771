"""Mean and standard deviation per channel, and the images they make.

For the spiking network the normalised image is the constant input current: the same numbers enter the first
layer at every time-step. Networks are converted with the normalisation they were trained with, so it is kept
in one place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ratenorm.data.image_set import ImageSet, to_float
from ratenorm.errors import DataError, UsageError


@dataclass(frozen=True)
class Normalisation:
    """x -> (x - mean) / std, channel by channel, for images in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.std):
            raise UsageError(
                f"Normalisation needs one mean and one std for each channel, got {len(self.mean)} means and "
                f"{len(self.std)} stds."
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if not all(math.isfinite(value) for value in values):
                raise UsageError(f"Normalisation: every {name} must be a finite number, got {values}.")
        if min(self.std) <= 0:
            raise UsageError(f"Normalisation: every std must be greater than 0, got {self.std}.")

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """The normalised copy of float images [..., C, H, W]."""
        if images.shape[-3] != len(self.mean):
            raise DataError(
                f"Normalising images of shape {tuple(images.shape)}: the images have {images.shape[-3]} "
                f"channels, the normalisation has {len(self.mean)}. Use one measured on such images "
                f"(measure_normalisation)."
            )
        mean = images.new_tensor(self.mean).reshape(-1, 1, 1)
        std = images.new_tensor(self.std).reshape(-1, 1, 1)
        return (images - mean).div_(std)

    def to_dict(self) -> dict[str, list[float]]:
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Normalisation:
        if set(values) != {"mean", "std"}:
            raise UsageError(f"A normalisation has the keys 'mean' and 'std', found {sorted(values)}.")
        return cls(_floats("mean", values["mean"]), _floats("std", values["std"]))


def _floats(name: str, values: Sequence[float]) -> tuple[float, ...]:
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"Normalisation: {name} must be a list of numbers, got {values!r}.") from error


# Measured on the training images, all pixels of a channel together, rounded to four places.
NORMALISATIONS: dict[str, Normalisation] = {
    "mnist": Normalisation((0.1307,), (0.3081,)),
    "cifar10": Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": Normalisation((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def measure_normalisation(images: ImageSet, chunk: int = 4096) -> Normalisation:
    """Mean and std per channel over all pixels of a set: use the training images, never the test images."""
    channels = images.images.shape[1]
    total = torch.zeros(channels, dtype=torch.float64)
    squares = torch.zeros(channels, dtype=torch.float64)
    for start in range(0, len(images), chunk):
        values = to_float(images.images[start : start + chunk]).double()
        total += values.sum(dim=(0, 2, 3))
        squares += values.square().sum(dim=(0, 2, 3))
    count = images.images.numel() // channels
    mean = total / count
    variance = (squares / count - mean.square()).clamp_min(0.0)
    if not bool(torch.isfinite(variance).all()):
        raise DataError(f"Measuring the normalisation of {images.name!r}: the images contain NaN or infinity.")
    if bool((variance < 1e-12).any()):
        flat = [channel for channel in range(channels) if variance[channel] < 1e-12]
        raise DataError(
            f"Measuring the normalisation of {images.name!r}: every pixel of channel {flat} has the same "
            f"value, so there is no std to divide by. Drop the channel, or pass a Normalisation of your own."
        )
    return Normalisation(tuple(mean.tolist()), tuple(variance.sqrt().tolist()))
