"""Checks of what callers hand to the public functions: a wrong argument is named before anything is computed."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ratenorm.errors import DataError, SimulationError, UsageError


def check_count(doing: str, name: str, value: Any, largest: int | None = None) -> int:
    """A whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (largest is not None and value > largest):
        upper = "" if largest is None else f" and at most {largest}"
        raise UsageError(
            f"{doing}: {name} is {value!r}; it must be a whole number and at least 1{upper}. Give an int, such as 32."
        )
    return value


def check_images(doing: str, name: str, x: Any) -> Tensor:
    """A batch of images as a floating-point tensor."""
    if not isinstance(x, Tensor):
        kind = f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
        fix = "torch.from_numpy(x).float()" if kind.startswith("numpy") else "torch.as_tensor(x).float()"
        raise DataError(
            f"{doing}: {name} is a {kind}; it must be a torch.Tensor of floating point, [batch, ...]. Use `{fix}`."
        )
    if not x.is_floating_point() or x.ndim < 2:
        raise SimulationError(
            f"{doing}: {name} has shape {tuple(x.shape)} and type {x.dtype}; the network takes [batch, ...] of "
            "floating point. Reshape or convert the images, for example `x.float() / 255`."
        )
    return x


def check_labels(doing: str, labels: Any, images: int) -> Tensor:
    """One whole number for each image."""
    if not isinstance(labels, Tensor):
        raise DataError(
            f"{doing}: the labels are a {type(labels).__name__}; they must be a torch.Tensor of classes, [batch]. Use "
            "`torch.as_tensor(labels)`."
        )
    if labels.shape != (images,):
        raise DataError(
            f"{doing}: there are labels of shape {tuple(labels.shape)} for {images} images; give one label for each "
            "image, [batch]."
        )
    if labels.dtype.is_complex or (labels.is_floating_point() and not bool((labels == labels.round()).all())):
        raise DataError(
            f"{doing}: the labels are {labels.dtype} and no whole numbers. Give classes, as `labels.long()`."
        )
    return labels


def check_start(doing: str, v0: Any) -> float:
    """A fraction of the threshold."""
    if isinstance(v0, bool) or not isinstance(v0, int | float) or not 0.0 <= v0 < 1.0:
        raise UsageError(f"{doing}: v0 is {v0!r}; it is a fraction of the threshold and must lie in [0, 1).")
    return float(v0)


def check_kind(doing: str, name: str, value: Any, kind: type | tuple[type, ...], allowed: str) -> None:
    """An object of the right class; `allowed` says which, and how to get one."""
    if not isinstance(value, kind):
        given = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise UsageError(f"{doing}: {name} is {given}; it must be {allowed}.")


def check_finite(doing: str, x: Tensor, first_image: int) -> None:
    """No NaN and no infinity."""
    if not math.isfinite(float(x.sum())) and not torch.isfinite(x).all():  # one pass for images that are all right
        bad = first_image + int((~torch.isfinite(x).flatten(1).all(1)).nonzero()[0])
        raise DataError(f"{doing}: image {bad} holds NaN or infinity; no neuron would fire for it. Remove or mend it.")
