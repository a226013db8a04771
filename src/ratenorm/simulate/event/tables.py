"""What the C++ core is told of a network: one table a stage, one a route. Names and meanings are those of
native/src/tables.h, which also draws the layouts; the core checks types, shapes and sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class RouteKind(IntEnum):
    """How the spikes of a list find the currents that they add to."""

    WINDOW = 0
    POINTS = 1
    ROWS = 2
    OWN = 3


class StageKind(IntEnum):
    """What a stage does with its currents."""

    STILL = 0
    DRIVEN = 1
    LOOKED_UP = 2
    RELAY = 3
    OUTPUT = 4


def flat(values: Any, dtype: Any) -> Array:
    """As a contiguous one-dimensional array of a type."""
    return np.ascontiguousarray(values, dtype=dtype).reshape(-1)


@dataclass(kw_only=True)
class RouteTable:
    """The spikes of one source on their way to the currents of a stage."""

    kind: int
    source: int
    grid: int
    inputs: int
    taps: int
    digits: int
    digit_shift: int
    apart: int
    members: int
    most: int = 0
    run: int = 0
    line: int = 0
    block: int
    used: int
    spike_cost: int
    windows: Array = field(default_factory=partial(np.zeros, 0, np.uint32))
    first: Array = field(default_factory=partial(np.zeros, 0, np.uint32))
    cut: Array = field(default_factory=partial(np.zeros, 0, np.uint8))
    segments: Array = field(default_factory=partial(np.zeros, 0, np.uint32))
    shares: Array = field(default_factory=partial(np.zeros, 0, np.float32))
    factors: Array = field(default_factory=partial(np.zeros, 0, np.float32))
    shorts: Array = field(default_factory=partial(np.zeros, 0, np.int16))
    weights: Array = field(default_factory=partial(np.zeros, 0, np.float32))
    units: Array = field(default_factory=partial(np.zeros, 0, np.float32))


@dataclass(kw_only=True)
class StageTable:
    """A population with what drives it; or a relay; or the output."""

    kind: int
    pixels: int
    blocks: int
    width: int
    channels: int
    threshold: Array = field(default_factory=partial(np.zeros, 0, np.float32))
    threshold_block: int = 0
    threshold_pixel: int = 0
    start: Array = field(default_factory=partial(np.zeros, 0, np.float32))
    base: Array = field(default_factory=partial(np.zeros, 0, np.float32))
    base_image: int = 0
    base_block: int = 0
    base_pixel: int = 0
    step_bias: Array = field(default_factory=partial(np.zeros, 0, np.float32))
    bias_rows: int = 0
    bias_row: int = 0
    bias_block: int = 0
    bias_pixel: int = 0
    places: Array = field(default_factory=partial(np.zeros, 0, np.uint32))
    total: int = 0
    together: int = 1
    computed: int = 0
    skip: int = -1
    skip_scale: Array = field(default_factory=partial(np.zeros, 0, np.float32))
    dense_row: int = 0
    dense_once: int = 0
    table: Array = field(default_factory=partial(np.zeros, 0, np.int16))
    units: Array = field(default_factory=partial(np.zeros, 0, np.float32))
    source: int = 0
    source_height: int = 0
    source_width: int = 0
    top: int = 0
    left: int = 0
    line: int = 0
    windows: Array = field(default_factory=partial(np.zeros, 0, np.uint32))
    members: int = 0
    source_pixels: int = 0
    fan_out: Array = field(default_factory=partial(np.zeros, 0, np.int64))
    runs: Array = field(default_factory=partial(np.zeros, 0, np.int32))
    routes: list[RouteTable] = field(default_factory=list)
