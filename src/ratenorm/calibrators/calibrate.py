"""`calibrate`: a converted network and unlabelled images in, one that answers sooner out. Nothing is trained."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from ratenorm import distributed
from ratenorm.arguments import check_kind
from ratenorm.calibrators.base import Calibrator
from ratenorm.calibrators.step_bias import StepBias
from ratenorm.calibrators.walk import Walk, with_fires
from ratenorm.convert.calibration import Calibration, calibration_batches
from ratenorm.convert.convert import Calibrated, Conversion
from ratenorm.errors import CalibrationError, UsageError
from ratenorm.graph.ops import Fire

LARGEST_STEPS = 1024


def calibrate(
    conversion: Conversion,
    images: Tensor | Iterable[Any] | Calibration,
    steps: int = 4,
    method: Calibrator | None = None,
    *,
    progress: bool = False,
) -> Conversion:
    """Calibrate a converted network for its first steps.

    The images decide nothing but means, so the result is the same for any batch size and any order. Calibrators can
    follow one another.

    Args:
        conversion: What `convert` returned.
        images: Unlabelled training images, transformed as in training; some 600 are enough.
        steps: T, the number of steps to calibrate for. `method.after` says what happens after them.
        method: A calibrator; `StepBias()` by default.
        progress: Show a progress bar.

    Returns:
        A new conversion; the one given is not changed.

    Raises:
        UsageError: If `steps` is not a whole number from 1 to 1024, or the method is not a calibrator.
        CalibrationError: If the images do not fit the network or memory.

    Example:
        >>> import ratenorm as rn, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> x = torch.rand(64, 4)
        >>> conversion = rn.convert(model, rn.EqualOmega(2.3), example=x[:1], calibration=x, v0=0.5)
        >>> rn.calibrate(conversion, x, steps=2).calibrated[0].steps
        2
    """
    check_kind("Calibrating", "the conversion", conversion, Conversion, "what `convert` returned")
    method = StepBias() if method is None else method
    if not isinstance(method, Calibrator):
        raise UsageError(f"Calibrating: {method!r} is not a calibrator. Give one such as StepBias().")
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= LARGEST_STEPS:
        raise UsageError(f"Calibrating: steps is {steps!r}; it must be a whole number from 1 to {LARGEST_STEPS}.")
    given = (
        images
        if isinstance(images, Calibration)
        else Calibration(calibration_batches(_checked(images), conversion.net.input_shape))
    )
    given.fit(conversion.net.input_shape, conversion.net.dtypes)
    ordered = given.in_own_order()
    if given.shared:  # each process takes its share of the sorted images
        here = distributed.world()
        ordered = ordered[here.rank :: here.size]
    if len(ordered) == 0:
        raise CalibrationError("Calibrating: there are fewer images than processes. Give more images.")
    walk = Walk(conversion, ordered, steps, shared=given.shared)
    fires: dict[str, Fire] = {}
    bar = tqdm(
        walk.populations(),
        desc=f"calibrating ({method.label})",
        total=len(conversion.net.populations),
        unit="layer",
        disable=not progress or not distributed.world().writer,
        file=sys.stderr,
        dynamic_ncols=True,
    )
    for population in bar:
        fires[population.name] = method.fit(population)
    done = Calibrated(method.to_json(), method.papers, steps, walk.count)
    return replace(conversion, net=with_fires(conversion.net, fires), calibrated=(*conversion.calibrated, done))


def _checked(images: Any) -> Any:
    """Labels are a common mistake: whole numbers in one dimension."""
    if isinstance(images, Tensor) and (images.ndim < 2 or not images.is_floating_point()):
        raise CalibrationError(
            f"Calibrating: got a tensor of {str(images.dtype).removeprefix('torch.')} of shape {tuple(images.shape)}. "
            "That looks like labels, not images. Give unlabelled images as floating-point numbers, [N, ...]."
        )
    if isinstance(images, Tensor) and not torch.isfinite(images).all():
        raise CalibrationError("Calibrating: the images hold NaN or infinity. Remove or mend them.")
    return images
