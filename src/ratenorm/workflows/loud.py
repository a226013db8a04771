"""What must be said aloud: a network at chance, and one that is more than a point below its source."""

from __future__ import annotations

import math
from typing import Any

NEAR = 0.01


def at_chance(accuracy: float, classes: int, images: int) -> bool:
    """Whether an accuracy is within three standard errors of guessing."""
    if classes < 2:
        return False
    chance = 1.0 / classes
    return accuracy <= chance + 3.0 * math.sqrt(chance * (1.0 - chance) / max(1, images))


def chance_line(accuracy: float, classes: int, images: int, what: str) -> str | None:
    """The sentence for a network that guesses."""
    if not at_chance(accuracy, classes, images):
        return None
    return (
        f"WARNING: {what} has {100 * accuracy:.2f} % of {images:,} images in {classes} classes: that is chance. Check "
        "its weights, the normalisation of the images and the order of the classes before anything else."
    )


def loss_line(run: dict[str, Any]) -> str | None:
    """The sentence for a spiking network that has lost more than a point at its last step."""
    lost = run["ann_accuracy"] - run["accuracy"][-1]
    if lost <= NEAR:
        return None
    return (
        f"WARNING: {run['name']!r} is {100 * lost:.2f} points below its ANN at T = {run['steps']}. `ratenorm diagnose` "
        "names the layer; more steps, --calibrate step-bias or `ratenorm low-latency` may mend it."
    )


def warnings_of(record: dict[str, Any]) -> list[str]:
    """Every sentence a record calls for."""
    classes, images = len(record["data"]["classes"]), record["data"]["images"]
    found = [chance_line(record["ann"]["accuracy"], classes, images, "the ANN itself")]
    if found[0] is None:
        found += [loss_line(run) for run in record["runs"]]
    return [line for line in found if line is not None]
