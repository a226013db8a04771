"""A few images of a known set, ready for a network of the zoo."""

from __future__ import annotations

import os

import torch

from ratenorm.data.batches import Batches
from ratenorm.data.datasets import load
from ratenorm.data.normalise import NORMALISATIONS
from ratenorm.errors import UsageError


def sample(
    name: str, count: int, split: str = "test", root: str | os.PathLike[str] | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first images of a known set, normalised as the networks of the zoo take them, and their labels.

    Args:
        name: "mnist", "cifar10" or "cifar100".
        count: How many images.
        split: "train" or "test".
        root: Where the data set lies; MNIST is part of the package.

    Returns:
        Images [count, C, H, W] as float32, and labels [count].

    Raises:
        UsageError: If there are not as many images.

    Example:
        >>> import ratenorm as rn
        >>> images, labels = rn.data.sample("mnist", 3)
        >>> images.shape, labels.tolist()
        (torch.Size([3, 1, 28, 28]), [7, 2, 1])
    """
    images = load(name, split, root)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(images):
        raise UsageError(f"Taking a sample of {name}: count is {count!r}; it must be from 1 to {len(images):,}.")
    some = Batches(images.subset(range(count)), count, normalise=NORMALISATIONS[name])
    return next(iter(some))
