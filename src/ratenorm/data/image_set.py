"""Images and labels: the one type every loader returns and everything else reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from ratenorm.data.seeds import generator_for
from ratenorm.errors import DataError, UsageError


class Pictures(Protocol):
    """Images [N, C, H, W]: a tensor, or something that reads them when it is indexed like one."""

    @property
    def shape(self) -> torch.Size: ...

    dtype: torch.dtype

    def dim(self) -> int: ...

    def numel(self) -> int: ...

    def is_floating_point(self) -> bool: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> torch.Tensor: ...


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """`images` [N, C, H, W], uint8 in 0..255 or float32 as it is meant; `labels` [N], int64; names of the
    classes. The images may be streamed: read from a data set when they are asked for.

    It is a (tensor, label) dataset itself: item i is the image as float32 (bytes divided by 255) and its
    label.
    """

    name: str
    images: Pictures
    labels: torch.Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        doing = f"Making the image set {self.name!r}"
        if self.images.dim() != 4:
            raise DataError(
                f"{doing}: images must have shape [N, C, H, W], got {list(self.images.shape)}. Grey images "
                f"without a channel dimension: images.unsqueeze(1)."
            )
        if self.images.dtype not in (torch.uint8, torch.float32):
            raise DataError(f"{doing}: images must be uint8 or float32, got {self.images.dtype}.")
        if self.labels.dim() != 1 or self.labels.dtype != torch.int64:
            raise DataError(
                f"{doing}: labels must be int64 of shape [N], got {self.labels.dtype} of shape "
                f"{list(self.labels.shape)}."
            )
        if len(self.images) != len(self.labels):
            raise DataError(f"{doing}: {len(self.images)} images but {len(self.labels)} labels.")
        if self.images.numel() == 0:
            raise DataError(f"{doing}: there is no image in it (shape {list(self.images.shape)}).")
        outside = (self.labels < 0) | (self.labels >= len(self.classes))
        if bool(outside.any()):
            first = int(outside.nonzero()[0])
            raise DataError(
                f"{doing}: image {first} has label {int(self.labels[first])}, allowed are 0 to "
                f"{len(self.classes) - 1} ({len(self.classes)} classes)."
            )

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.image_shape))
        return f"ImageSet({self.name!r}: {len(self):,} images of {shape}, {len(self.classes)} classes)"

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"image {index} of {self.name!r}, which has {len(self)}")
        return to_float(self.images[index]), int(self.labels[index])

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        return (self[index] for index in range(len(self)))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def subset(self, indices: Sequence[int] | torch.Tensor) -> ImageSet:
        """The images at `indices`, in that order (a copy). A boolean mask of length N works too."""
        chosen = torch.as_tensor(indices)
        if chosen.dtype == torch.bool:
            if chosen.shape != self.labels.shape:
                raise UsageError(
                    f"Choosing from {self.name!r}: the mask has shape {list(chosen.shape)}, needed is [{len(self)}]."
                )
            chosen = chosen.nonzero().flatten()
        if chosen.dim() != 1 or chosen.is_floating_point() or chosen.numel() == 0:
            raise UsageError(
                f"Choosing from {self.name!r}: indices must be a non-empty list of integers, got "
                f"{chosen.dtype} of shape {list(chosen.shape)}."
            )
        chosen = chosen.long()
        low, high = int(chosen.min()), int(chosen.max())
        if low < 0 or high >= len(self):
            wrong = low if low < 0 else high
            raise UsageError(
                f"Choosing from {self.name!r}: index {wrong} is outside 0 to {len(self) - 1} ({len(self)} images)."
            )
        take = getattr(self.images, "subset", self.images.__getitem__)  # streamed images stay unread
        return replace(self, images=take(chosen), labels=self.labels[chosen])


def to_float(images: torch.Tensor) -> torch.Tensor:
    """Bytes as float32 in [0, 1]; float images unchanged."""
    if images.dtype == torch.uint8:
        return images.float().div_(255.0)
    return images


def split_holdout(images: ImageSet, count: int, seed: int) -> tuple[ImageSet, ImageSet]:
    """(the rest, `count` held-out images), every class held out in proportion, chosen by `seed` alone.

    Choices (schedule, lambda, early exit) are made on held-out training images, never on the test set.
    Both parts keep the order of the original.
    """
    if not 0 < count < len(images):
        raise UsageError(
            f"Holding out {count} images of {images.name!r}: choose between 1 and {len(images) - 1} "
            f"(it has {len(images)})."
        )
    generator = generator_for(seed, "holdout")
    held = torch.zeros(len(images), dtype=torch.bool)
    for label, quota in enumerate(_quotas(torch.bincount(images.labels), count)):
        members = (images.labels == label).nonzero().flatten()
        order = torch.randperm(len(members), generator=generator)
        held[members[order[:quota]]] = True
    return images.subset(~held), images.subset(held)


def _quotas(sizes: torch.Tensor, count: int) -> list[int]:
    """Share `count` among classes in proportion to their sizes; largest remainders are rounded up."""
    total = int(sizes.sum())
    # Integers throughout, so that the result cannot depend on rounding.
    quotas = [int(size) * count // total for size in sizes]
    remainders = [int(size) * count % total for size in sizes]
    by_remainder = sorted(range(len(quotas)), key=lambda label: -remainders[label])
    for label in by_remainder[: count - sum(quotas)]:
        quotas[label] += 1
    return quotas
