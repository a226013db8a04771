"""Calibration images: checked once, cut into batches, handed to the methods that need them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from ratenorm import distributed
from ratenorm.data import batches_of
from ratenorm.errors import CalibrationError


class Calibration:
    """Unlabelled images as a list of batches. Accepts a tensor, or any iterable of tensors or (tensor, label) pairs.

    The images are kept (not copied): methods may pass over them more than once, and exact percentiles need their
    number. With `shared`, several processes (torchrun) each hold a part of the images, and every method gives all of
    them what one process with all the images would find.
    """

    def __init__(self, images: Tensor | Iterable[Any], batch_size: int = 100, *, shared: bool = False) -> None:
        self.shared = shared and distributed.world().size > 1
        if isinstance(images, Tensor):
            images = images.split(batch_size) if images.ndim else [images]
        if not isinstance(images, Iterable):
            raise CalibrationError(
                f"Calibrating: the images are given as calibration={images!r}; give a tensor of images, or batches of "
                "them, for example `calibration=x[:1000]`."
            )
        found = [self._images(i, item) for i, item in enumerate(images)]
        self.batches = [batch for batch in found if len(batch)]
        if not self.batches:
            raise CalibrationError(
                "Calibrating: there is no image. Give some unlabelled training images, "
                "for example `calibration=x[:1000]`."
            )
        for i, batch in enumerate(self.batches):
            if not torch.isfinite(batch).all():
                raise CalibrationError(
                    f"Calibrating: batch {i} of the images holds NaN or infinity. Remove or mend "
                    "these images; one of them would spoil every threshold."
                )

    @staticmethod
    def _images(index: int, item: Any) -> Tensor:
        images = item[0] if isinstance(item, tuple | list) and item else item
        if not isinstance(images, Tensor) or not images.is_floating_point() or images.ndim < 2:
            got = (
                f"{images.dtype} of shape {list(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
            )
            raise CalibrationError(
                f"Calibrating: batch {index} is {got}, not a floating-point tensor of images. Give batches "
                "[batch, ...] or (images, labels) pairs, transformed as in training."
            )
        return images

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.batches)

    def __len__(self) -> int:
        """The number of images, of all processes where they share them."""
        own = sum(len(b) for b in self.batches)
        return int(distributed.total(torch.tensor(own))) if self.shared else own

    def in_own_order(self) -> Tensor:
        """All images, sorted by a hash of their content: neighbours are unrelated, and how they came is forgotten."""
        images = torch.cat(self.batches)
        if self.shared:
            images = distributed.gathered(images.flatten()).view(-1, *images.shape[1:])
        keys = [hashlib.sha256(image.contiguous().cpu().numpy().tobytes()).digest() for image in images]
        return images[sorted(range(len(images)), key=keys.__getitem__)]

    def pixel_range(self) -> tuple[float, float]:
        """The smallest and the largest value of the images."""
        ends = torch.stack([torch.stack([-batch.amin(), batch.amax()]) for batch in self.batches]).amax(0)
        low, high = (distributed.largest(ends) if self.shared else ends).tolist()
        return -low, high

    def fit(self, input_shape: tuple[int, ...], kinds: frozenset[torch.dtype] = frozenset()) -> None:
        """Refuse images that do not fit the network; bring them to the type of its numbers."""
        if len(kinds) == 1:
            self.batches = [batch.to(next(iter(kinds))) for batch in self.batches]
        for i, batch in enumerate(self.batches):
            if tuple(batch.shape[1:]) != input_shape:
                raise CalibrationError(
                    f"Calibrating: batch {i} has images of shape {tuple(batch.shape[1:])}, the network takes "
                    f"{input_shape}. Transform them as in training."
                )


def calibration_batches(images: Any, input_shape: tuple[int, ...]) -> Any:
    """What a user gives as calibration images: tensors and their batches as they are, data sets in batches."""
    if isinstance(images, Tensor) or not (hasattr(images, "__iter__") or hasattr(images, "__getitem__")):
        return images
    return batches_of(images, input_shape, "Calibrating")
