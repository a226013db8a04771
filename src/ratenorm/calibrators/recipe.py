"""A whole conversion as one line of text: thresholds, start potential, calibrations.

METHOD[/V0][+CALIBRATOR[@T]]...        omega:2.3/0.5+step-bias@8
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ratenorm.calibrators.base import Calibrator
from ratenorm.calibrators.base import parse as parse_calibrator
from ratenorm.calibrators.calibrate import calibrate
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import DEFAULT_START, Conversion, convert_graph, recommended
from ratenorm.convert.support import SupportReport
from ratenorm.convert.thresholds import Method
from ratenorm.convert.thresholds import parse as parse_method
from ratenorm.errors import UsageError
from ratenorm.graph.net import Graph

DEFAULT_STEPS = 4
RECOMMENDED = "recommended"


@dataclass(frozen=True)
class Recipe:
    """How to convert one network.

    Args:
        text: What the recipe was read from; its name in tables.
        method: The thresholds; None for the recommended ones.
        v0: Start potential as a fraction of the threshold; None for the method's usual one.
        calibrations: Calibrators in order, each with the steps it calibrates for.
    """

    text: str
    method: Method | None
    v0: float | None = None
    calibrations: tuple[tuple[Calibrator, int], ...] = ()

    @property
    def needs_data(self) -> bool:
        """Whether it needs images whatever the network is."""
        return bool(self.calibrations) or self.method is None or self.method.needs_data

    def apply(
        self,
        analog: Graph,
        images: Calibration | None,
        report: SupportReport,
        *,
        calibration_images: Tensor | Calibration | None = None,
        progress: bool = False,
    ) -> Conversion:
        """Convert a folded analog graph. `calibration_images` are for the calibrators, `images` if not given."""
        method = recommended(analog) if self.method is None else self.method
        usual = DEFAULT_START if self.method is None else 0.0
        conversion = convert_graph(analog, method, images, usual if self.v0 is None else self.v0, report)
        given: Any = images if calibration_images is None else calibration_images
        for calibrator, steps in self.calibrations:
            conversion = calibrate(conversion, given, steps, calibrator, progress=progress)
        return conversion


def parse_recipe(text: str, steps: int = DEFAULT_STEPS) -> Recipe:
    """Read a recipe; a calibrator without `@T` is for `steps` steps.

    Example:
        >>> recipe = parse_recipe("omega:2.3/0.5+step-bias@8")
        >>> recipe.v0, recipe.calibrations[0][1]
        (0.5, 8)
    """
    thresholds, *words = text.split("+")
    name, slash, start = thresholds.partition("/")
    method = None if name == RECOMMENDED else parse_method(name)
    v0 = _number(text, start) if slash else None
    return Recipe(text, method, v0, tuple(_calibration(text, word, steps) for word in words))


def _calibration(text: str, word: str, steps: int) -> tuple[Calibrator, int]:
    name, at, count = word.partition("@")
    if at and not count.isdecimal():
        raise UsageError(f"Reading the conversion {text!r}: {count!r} is not a number of steps. Write {name}@8.")
    return parse_calibrator(name), int(count) if at else steps


def _number(text: str, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"Reading the conversion {text!r}: {word!r} is not a start potential. Write METHOD/0.5.")
    return value
