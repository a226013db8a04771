"""Normalised float batches, each a function of (seed, epoch, batch index) and of nothing that ran before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from ratenorm.data.augment import Augment, apply_draws, draw
from ratenorm.data.image_set import ImageSet, to_float
from ratenorm.data.normalise import Normalisation
from ratenorm.data.seeds import generator_for
from ratenorm.errors import DataError, UsageError

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Batches:
    """The images of a set in batches of `batch_size`: (float32 [B, C, H, W], int64 [B]).

    `for x, y in batches` goes through epoch 0; `batches.epoch(e, start=b)` through epoch e from batch b on,
    with exactly the batches an uninterrupted epoch has there. `normalise` None leaves images in [0, 1].

    With `world_size` processes, `batch_size` is that of all together and each sees a contiguous slice of
    every batch: put together in order of `rank`, the slices are the batch a single process would see,
    augmentation included. A last, incomplete batch is shared as evenly as it goes; if it has fewer images
    than there are processes, some get none.
    """

    images: ImageSet
    batch_size: int
    shuffle: bool = False
    seed: int = 0
    augment: Augment | None = None
    normalise: Normalisation | None = None
    drop_last: bool = False
    rank: int = 0
    world_size: int = 1
    _flip_phase: torch.Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise UsageError(f"Batches of {self.images.name!r}: batch_size must be at least 1, got {self.batch_size}.")
        if not 0 <= self.rank < self.world_size:
            raise UsageError(
                f"Batches of {self.images.name!r}: rank must be between 0 and world_size - 1, got rank "
                f"{self.rank} of {self.world_size}."
            )
        if self.batch_size % self.world_size:
            raise UsageError(
                f"Batches of {self.images.name!r}: batch_size {self.batch_size} cannot be shared evenly by "
                f"{self.world_size} processes. Fix: choose a multiple of {self.world_size}."
            )
        if len(self) == 0:
            raise UsageError(
                f"Batches of {self.images.name!r}: drop_last leaves nothing of {len(self.images)} images in "
                f"batches of {self.batch_size}. Fix: a smaller batch_size, or drop_last=False."
            )
        if self.normalise is not None and len(self.normalise.mean) != self.images.image_shape[0]:
            raise UsageError(
                f"Batches of {self.images.name!r}: the images have {self.images.image_shape[0]} channels, "
                f"the normalisation has {len(self.normalise.mean)}."
            )
        # Which images are mirrored in even epochs is a property of the image, so it is drawn once for all
        # epochs.
        phase = torch.randint(0, 2, (len(self.images),), generator=generator_for(self.seed, "flip")).bool()
        object.__setattr__(self, "_flip_phase", phase)

    def __len__(self) -> int:
        whole, rest = divmod(len(self.images), self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch(0)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from batch `start` on (`start` = len(self): none are left)."""
        if epoch < 0 or not 0 <= start <= len(self):
            raise UsageError(
                f"Batches of {self.images.name!r}: epoch must be 0 or more and start between 0 and "
                f"{len(self)}, got epoch {epoch}, start {start}."
            )
        order = self._order(epoch)
        return (self._batch(order, epoch, index) for index in range(start, len(self)))

    def _order(self, epoch: int) -> torch.Tensor:
        if not self.shuffle:
            return torch.arange(len(self.images))
        return torch.randperm(len(self.images), generator=generator_for(self.seed, "order", epoch))

    def _batch(self, order: torch.Tensor, epoch: int, index: int) -> Batch:
        chosen = order[index * self.batch_size : (index + 1) * self.batch_size]
        low = len(chosen) * self.rank // self.world_size
        high = len(chosen) * (self.rank + 1) // self.world_size
        mine = chosen[low:high]
        images = self.images.images[mine]
        if self.augment is not None:
            draws = draw(
                self.augment,
                len(chosen),
                self.images.image_shape[1:],
                generator_for(self.seed, "augment", epoch, index),
                epoch,
                self._flip_phase[chosen],
            )
            images = apply_draws(images, self.augment, draws.part(low, high))
        if images.is_floating_point():
            self._check_finite(images, mine, epoch, index)
        images = to_float(images)
        if self.normalise is not None:
            images = self.normalise(images)
        return images, self.images.labels[mine]

    def _check_finite(self, images: torch.Tensor, chosen: torch.Tensor, epoch: int, index: int) -> None:
        finite = torch.isfinite(images).flatten(1).all(dim=1)
        if not bool(finite.all()):
            bad = chosen[~finite].tolist()
            raise DataError(
                f"Reading batch {index} of epoch {epoch} of {self.images.name!r}: {len(bad)} of "
                f"{len(chosen)} images contain NaN or infinity, the first is image {bad[0]} of the set. "
                f"Fix: repair or remove them."
            )
