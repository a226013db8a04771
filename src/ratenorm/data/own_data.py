"""A user's own data: tensors, a torch Dataset, a DataLoader, or a Hugging Face data set.

A pair of tensors is taken as it is. Everything else is streamed: images are read when a batch needs them and are not
copied into memory. Only the labels are read at once, since held-out images are chosen class by class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ratenorm.data.image_set import ImageSet, Pictures
from ratenorm.errors import DataError

IMAGE_KEYS = ("image", "img", "pixel_values", "images", "x")
LABEL_KEYS = ("label", "labels", "fine_label", "target", "y")
BATCH = 100  # images read together where a data set gives them one by one


class StreamedPictures:
    """The images of a data set, read when they are asked for. Indexed like a tensor [N, C, H, W]."""

    def __init__(self, dataset: Any, name: str, chosen: torch.Tensor | None = None) -> None:
        self.dataset, self.name = dataset, name
        self.chosen = torch.arange(len(dataset)) if chosen is None else chosen
        first, _ = read_item(dataset, 0, name)
        self._item_shape, self.dtype = tuple(first.shape), first.dtype

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.chosen), *self._item_shape))

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return self.shape.numel()

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, index: Any) -> torch.Tensor:
        if isinstance(index, tuple):
            found = self[index[0]]
            return found[index[1:] if isinstance(index[0], int) else (slice(None), *index[1:])]
        places = self.chosen[index]
        if places.ndim == 0:
            return self._read(int(places))
        if len(places) == 0:
            return torch.empty((0, *self._item_shape), dtype=self.dtype)
        return torch.stack([self._read(int(place)) for place in places])

    def subset(self, indices: torch.Tensor) -> StreamedPictures:
        """Some of the images, still unread."""
        return StreamedPictures(self.dataset, self.name, self.chosen[indices])

    def _read(self, place: int) -> torch.Tensor:
        image, _ = read_item(self.dataset, place, self.name)
        if tuple(image.shape) != self._item_shape or image.dtype != self.dtype:
            raise DataError(
                f"Reading the dataset {self.name!r}: item {place} is {image.dtype} {list(image.shape)}, item 0 is "
                f"{self.dtype} {list(self._item_shape)}. All images must be alike; resize them in the dataset's "
                "transform."
            )
        return image


def from_dataset(dataset: Any, name: str = "custom", classes: Sequence[str] | None = None) -> ImageSet:
    """A user's data as an ImageSet.

    Args:
        dataset: An ImageSet (returned as it is), a pair (images [N, C, H, W], labels [N]) of tensors, a data set with
            `len()`, or a DataLoader of one. Items are (image, label) or dictionaries with an image and a label, as in
            torchvision and Hugging Face. An image is a tensor [C, H, W], a PIL image, or an array [H, W] or [H, W, C].
        name: What messages and records call it.
        classes: Names of the classes; by default those the data set has, else numbers.

    Returns:
        The set. Images of a data set are read when they are needed.

    Raises:
        DataError: If an item is not an image with a whole number as label.

    Example:
        >>> import torch
        >>> pairs = [(torch.rand(1, 4, 4), i % 2) for i in range(6)]
        >>> from_dataset(pairs, "pairs")
        ImageSet('pairs': 6 images of 1 x 4 x 4, 2 classes)
    """
    if isinstance(dataset, ImageSet):
        return dataset
    images: Pictures
    if isinstance(dataset, tuple) and len(dataset) == 2 and all(torch.is_tensor(part) for part in dataset):
        images, labels = _as_images(dataset[0], name), _as_labels(dataset[1], name)
    else:
        dataset = _source(dataset, name)
        images = StreamedPictures(dataset, name)
        labels = _labels(dataset, name)
        classes = _class_names(dataset) if classes is None else classes
    if classes is None:
        classes = [str(label) for label in range(int(labels.max()) + 1 if labels.numel() else 0)]
    return ImageSet(name, images, labels, tuple(classes))


def batches_of(data: Any, input_shape: tuple[int, ...], doing: str) -> Iterator[Any]:
    """Batches of (images, labels), whatever was given: batches already, an ImageSet, or a data set of single images."""
    if isinstance(data, ImageSet):
        yield from _joined(iter(data), doing)
        return
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise DataError(
            f"{doing}: got a {type(data).__name__}. Give batches of (images, labels), such as [(x, y)], a DataLoader "
            "or a data set."
        )
    items = iter(data) if hasattr(data, "__iter__") else (data[i] for i in range(len(data)))
    for item in items:
        if not _is_single(item, input_shape):
            yield _pair(item)
            continue
        yield from _joined(_chain(item, items), doing)


def _chain(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from others


def _is_single(item: Any, input_shape: tuple[int, ...]) -> bool:
    """Whether an item is one image and not a batch."""
    pair = _pair(item)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return False
    image = pair[0]
    if torch.is_tensor(image):
        return image.ndim == len(input_shape)
    return hasattr(image, "convert") or type(image).__module__.partition(".")[0] == "numpy"


def _joined(items: Iterator[Any], doing: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Single images as batches."""
    images: list[torch.Tensor] = []
    labels: list[int] = []
    for number, item in enumerate(items):
        image, label = _as_item(item, number, doing)
        images.append(image.float() / 255 if image.dtype == torch.uint8 else image)
        labels.append(label)
        if len(images) == BATCH:
            yield torch.stack(images), torch.tensor(labels)
            images, labels = [], []
    if images:
        yield torch.stack(images), torch.tensor(labels)


def read_item(dataset: Any, index: int, name: str) -> tuple[torch.Tensor, int]:
    """One image [C, H, W] and its label."""
    return _as_item(dataset[index], index, f"Reading the dataset {name!r}")


def _source(dataset: Any, name: str) -> Any:
    """The data set behind a DataLoader, or the data set itself."""
    if isinstance(dataset, torch.utils.data.DataLoader):
        dataset = dataset.dataset
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DataError(
            f"Reading the dataset {name!r}: a {type(dataset).__name__} has no length or no items. Pass a "
            f"pair (images, labels) of tensors, or a dataset with len() whose items are (image, label)."
        )
    if len(dataset) == 0:
        raise DataError(f"Reading the dataset {name!r}: it is empty.")
    return dataset


def _labels(dataset: Any, name: str) -> torch.Tensor:
    """All labels, without reading the images where the data set knows them."""
    for attribute in ("targets", "labels"):  # torchvision
        known = getattr(dataset, attribute, None)
        if known is not None and hasattr(known, "__len__") and len(known) == len(dataset):
            return _as_labels(torch.as_tensor(known), name)
    columns = getattr(dataset, "column_names", None)  # Hugging Face
    if isinstance(columns, list) and (key := next((k for k in LABEL_KEYS if k in columns), None)):
        return _as_labels(torch.as_tensor(list(dataset[key])), name)
    pictures = StreamedPictures(dataset, name)
    found = torch.empty(len(dataset), dtype=torch.int64)
    for index in range(len(dataset)):
        image, found[index] = read_item(dataset, index, name)
        if tuple(image.shape) != pictures.shape[1:] or image.dtype != pictures.dtype:
            pictures[index]  # says which item differs
    return found


def _class_names(dataset: Any) -> list[str] | None:
    known = getattr(dataset, "classes", None)
    if isinstance(known, list | tuple) and all(isinstance(one, str) for one in known):
        return list(known)
    features = getattr(dataset, "features", None)
    if isinstance(features, Mapping):
        for key in LABEL_KEYS:
            names = getattr(features.get(key), "names", None)
            if isinstance(names, list):
                return [str(one) for one in names]
    return None


def _pair(item: Any) -> Any:
    """(image, label) of a dictionary with both; anything else as it is."""
    if not isinstance(item, Mapping):
        return item
    image = next((item[key] for key in IMAGE_KEYS if key in item), None)
    label = next((item[key] for key in LABEL_KEYS if key in item), None)
    return item if image is None or label is None else (image, label)


def _as_item(item: Any, index: int, doing: str) -> tuple[torch.Tensor, int]:
    pair = _pair(item)
    if not isinstance(pair, tuple | list) or len(pair) != 2 or (image := _as_image(pair[0])) is None:
        raise DataError(
            f"{doing}: item {index} must be a pair (image, label), got {_describe(item)}. An image is a tensor "
            "[C, H, W], a PIL image or an array."
        )
    label = pair[1]
    if torch.is_tensor(label):
        integral = label.numel() == 1 and not label.is_floating_point() and not label.is_complex()
    else:
        integral = hasattr(label, "__index__")  # int, and the integers of numpy
    if not integral:
        raise DataError(f"{doing}: the label of item {index} must be one integer, got {label!r}.")
    return image, int(label)


def _as_image(image: Any) -> torch.Tensor | None:
    """A tensor [C, H, W] as it is; a PIL image or an array [H, W] or [H, W, C] as one; None for anything else."""
    if torch.is_tensor(image):
        return image if image.dtype == torch.uint8 or not image.is_floating_point() else image.float()
    import numpy as np

    if hasattr(image, "convert") and hasattr(image, "getbands"):  # PIL
        image = np.array(image if len(image.getbands()) in (1, 3) and image.mode != "P" else image.convert("RGB"))
    if not isinstance(image, np.ndarray) or image.ndim not in (2, 3):
        return None
    pixels = torch.from_numpy(np.ascontiguousarray(image))
    pixels = pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1)
    return pixels if pixels.dtype == torch.uint8 else pixels.float()


def _describe(item: Any) -> str:
    if isinstance(item, tuple | list):
        return f"({', '.join(type(part).__name__ for part in item)})"
    if isinstance(item, Mapping):
        return f"a dictionary with the keys {sorted(map(str, item))}"
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
