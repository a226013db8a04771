"""Load a known data set by name."""

from __future__ import annotations

import os
from typing import cast

from ratenorm.data.cifar import read_cifar
from ratenorm.data.files import SetStatus, check_files
from ratenorm.data.image_set import ImageSet
from ratenorm.data.mnist_files import check_mnist, read_mnist
from ratenorm.data.sets import MNIST, Split, check_split, data_root, find_spec


def load(name: str, split: str, root: str | os.PathLike[str] | None = None) -> ImageSet:
    """The "train" or "test" images of "mnist", "cifar10" or "cifar100".

    CIFAR is read from the official binary files under `root`, else $RATENORM_DATA, else
    ~/.cache/ratenorm/data. MNIST is part of the package; only where `root` is given are its official files
    read from `root`/MNIST/raw.
    """
    spec = find_spec(name)
    check_split(split)
    if spec is MNIST:
        return read_mnist(cast(Split, split), None if root is None else data_root(root))
    return read_cifar(spec, cast(Split, split), data_root(root))


def verify(name: str, root: str | os.PathLike[str] | None = None) -> SetStatus:
    """Every file of a set: complete, missing or damaged. For MNIST without `root`: the embedded files."""
    spec = find_spec(name)
    if spec is MNIST:
        return check_mnist(None if root is None else data_root(root))
    return check_files(spec, root)
