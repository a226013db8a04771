"""Converting a network file: images where they are needed, and what is kept with the spiking network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ratenorm.calibrators.recipe import Recipe
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import Conversion, recommended
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.data import Batches, ImageSet
from ratenorm.distributed import world
from ratenorm.errors import DataError, UsageError
from ratenorm.graph.net import run
from ratenorm.io.networks import NetworkSpec
from ratenorm.workflows.calibration import calibration_images
from ratenorm.workflows.data import DataConfig, images_to_choose_by
from ratenorm.workflows.loud import NEAR, chance_line

CHECKED_IMAGES = 1000  # on which the ANN and its clipped form are compared
CALIBRATION_IMAGES = 600  # for calibrators: more images do not help, and their time grows with them


def convert_with(
    recipe: Recipe,
    model: nn.Module,
    spec: NetworkSpec,
    data: Callable[[], DataConfig],
    count: int = 1000,
    *,
    max_pool: Literal["gated", "average"] = "gated",
) -> Conversion:
    """Convert a network by a recipe. Training images are read only where the recipe needs some."""
    graph, report = lower(model, torch.zeros(1, *spec.input_shape), max_pool)
    analog = fold(graph)
    if recipe.method is None and not recommended(analog).needs_data and not recipe.calibrations:
        return recipe.apply(analog, None, report)
    if not recipe.needs_data:
        return recipe.apply(analog, None, report)
    images = calibration_images(data(), spec, count)
    few = images[:CALIBRATION_IMAGES]
    return recipe.apply(analog, _own_share(images), report, calibration_images=_own_share(few), progress=True)


def _own_share(images: Tensor) -> Calibration:
    """The images of this process."""
    here = world()
    return Calibration(images[here.rank :: here.size], shared=True)


def about_conversion(conversion: Conversion, spec: NetworkSpec, calibrated_on: str | None = None) -> dict[str, Any]:
    """What is kept in the file of a spiking network: where it comes from and how it was converted."""
    about: dict[str, Any] = {
        "spec": spec.to_json(),
        "method": conversion.method.to_json(),
        "v0": conversion.v0,
    }
    if conversion.calibrated:
        about["calibrated"] = [one.to_json() for one in conversion.calibrated]
    if known := [one for one in (spec.trained_on, calibrated_on) if one is not None]:
        about["learned_from"] = known
    return about


def summary(conversion: Conversion) -> str:
    """What was done, in one or two lines."""
    lines = [f"Thresholds: {conversion.method!r}; start: {conversion.v0:g} x threshold."]
    for one in conversion.calibrated:
        lines.append(f"Calibrated for T = {one.steps} on {one.images:,} images: {one.method['method']}.")
    return "\n".join(lines)


def clipping_lines(conversion: Conversion, spec: NetworkSpec, data: Callable[[], DataConfig]) -> list[str]:
    """The accuracy of the ANN and of its clipped form, to which the spiking network converges; nothing without data."""
    try:
        images, what = images_to_choose_by(data().of(spec).train(), spec.held_out, CHECKED_IMAGES, 0)
    except (DataError, UsageError):
        return []  # no labelled images at hand
    source, clipped = accuracies(conversion, images, spec)
    lines = [
        f"On {what}: the ANN has {100 * source:.2f} %, clipped at the thresholds {100 * clipped:.2f} %. Many steps "
        "give the second."
    ]
    if (line := chance_line(source, spec.num_classes, len(images), "the ANN itself")) is not None:
        lines.append(line)
    elif source - clipped > NEAR:
        lines.append(
            f"WARNING: the thresholds cut off {100 * (source - clipped):.2f} points. Take larger ones, such as "
            "--method percentile:99.9 or --method max."
        )
    return lines


@torch.no_grad()
def accuracies(conversion: Conversion, images: ImageSet, spec: NetworkSpec) -> tuple[float, float]:
    """Of the ANN, and of the ANN clipped at the thresholds."""
    right = [0, 0]
    for x, y in Batches(images, 200, normalise=spec.normalisation):
        for place, graph in enumerate((conversion.analog, conversion.net)):
            right[place] += int((run(graph, x).argmax(-1) == y).sum())
    return right[0] / len(images), right[1] / len(images)
