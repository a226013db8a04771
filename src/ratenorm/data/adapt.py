"""A user's own data as an ImageSet: a pair of tensors, or any (tensor, label) dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ratenorm.data.image_set import ImageSet
from ratenorm.errors import DataError


def from_dataset(dataset: Any, name: str = "custom", classes: Sequence[str] | None = None) -> ImageSet:
    """`dataset` as an ImageSet, in memory.

    It may be an ImageSet (returned as it is), a pair (images [N, C, H, W], labels [N]) of tensors, or
    anything with `len()` whose items are (image tensor [C, H, W], integer label), such as a torch Dataset.
    uint8 images are bytes 0..255; float images are taken as they are, as float32. Without `classes`, they are
    numbered up to the largest label.
    """
    if isinstance(dataset, ImageSet):
        return dataset
    if isinstance(dataset, tuple) and len(dataset) == 2 and all(torch.is_tensor(part) for part in dataset):
        images, labels = dataset
    else:
        images, labels = _collect(dataset, name)
    images, labels = _as_images(images, name), _as_labels(labels, name)
    if classes is None:
        count = int(labels.max()) + 1 if labels.numel() else 0
        classes = [str(label) for label in range(count)]
    return ImageSet(name, images, labels, tuple(classes))


def _collect(dataset: Any, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """All items of a dataset, into tensors that are allocated once."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DataError(
            f"Reading the dataset {name!r}: a {type(dataset).__name__} has no length or no items. Pass a "
            f"pair (images, labels) of tensors, or a dataset with len() whose items are (tensor, label)."
        )
    count = len(dataset)
    if count == 0:
        raise DataError(f"Reading the dataset {name!r}: it is empty.")
    first, _ = _item(dataset, 0, name)
    images = torch.empty((count, *first.shape), dtype=first.dtype)
    labels = torch.empty(count, dtype=torch.int64)
    for index in range(count):
        image, label = _item(dataset, index, name)
        if image.shape != first.shape or image.dtype != first.dtype:
            raise DataError(
                f"Reading the dataset {name!r}: item {index} is {image.dtype} {list(image.shape)}, item 0 is "
                f"{first.dtype} {list(first.shape)}. All images must be alike; resize them first."
            )
        images[index], labels[index] = image, label
    return images, labels


def _item(dataset: Any, index: int, name: str) -> tuple[torch.Tensor, int]:
    item = dataset[index]
    if not isinstance(item, (tuple, list)) or len(item) != 2 or not torch.is_tensor(item[0]):
        raise DataError(
            f"Reading the dataset {name!r}: item {index} must be a pair (image tensor, label), got "
            f"{_describe(item)}. Images of PIL or numpy: turn them into tensors first."
        )
    image, label = item
    if torch.is_tensor(label):
        integral = label.numel() == 1 and not label.is_floating_point() and not label.is_complex()
    else:
        integral = hasattr(label, "__index__")  # int, and the integers of numpy
    if not integral:
        raise DataError(f"Reading the dataset {name!r}: the label of item {index} must be one integer, got {label!r}.")
    return image, int(label)


def _describe(item: Any) -> str:
    if isinstance(item, (tuple, list)):
        return f"({', '.join(type(part).__name__ for part in item)})"
    return type(item).__name__


def _as_images(images: torch.Tensor, name: str) -> torch.Tensor:
    images = images.detach().cpu()
    if images.dtype == torch.uint8:
        return images
    if images.is_floating_point():
        return images.float()
    raise DataError(
        f"Reading the dataset {name!r}: images must be uint8 (bytes 0..255) or floating point, got {images.dtype}."
    )


def _as_labels(labels: torch.Tensor, name: str) -> torch.Tensor:
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DataError(f"Reading the dataset {name!r}: labels must be integers, got {labels.dtype}.")
    return labels.detach().cpu().long()
