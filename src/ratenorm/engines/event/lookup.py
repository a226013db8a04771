"""Narrow layers by looking up: what eight spikes bring together is written in a table.

Behind a 3x3 convolution from at most sixteen channels to at most sixteen, a pixel's spikes are one word, and a neuron's
window is nine words: eighteen bytes. For each place of a byte the table has, for all 256 values it can take, the sum of
the weights of its spikes. So a pixel's sixteen currents are eighteen rows of the table, however many spikes there are,
and no spike is listed. Where layers are wide, tables would be too large and most of their rows of no use.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch.nn import functional as F

from ratenorm.engines.event.arrays import Array, aligned
from ratenorm.engines.event.lanes import LANES
from ratenorm.engines.event.layout import Layout
from ratenorm.engines.event.routes import Route, Window
from ratenorm.engines.event.short import LARGEST, TINY, units_of

BYTE = 8
TAPS = 9


@dataclass(frozen=True, eq=False)
class Lookup:
    """The table of a layer, and how its windows lie."""

    table: Array  # [tap, half of a word, byte, lane], 16 bits
    units: Array  # [lane], what 1 stands for
    window: Window
    height: int  # of the layer itself
    width: int

    @property
    def plane(self) -> int:
        """Words of a picture with its padding: a window begins at the place of its pixel."""
        return (self.height + 2) * (self.width + 2)

    @property
    def numbers(self) -> list[int]:
        """For a job: the picture the spikes come from, its padding, the width of the layer, words of a picture."""
        window = self.window
        return [window.height, window.width, window.top, window.left, self.width, self.plane]


def lookup_of(layout: Layout, routes: tuple[Route, ...]) -> Lookup | None:
    """For a layer with these routes and no other, or None where it is not for them."""
    if len(routes) != 1 or layout.lanes != LANES:
        return None
    [route] = routes
    window = route.window
    if window is None or route.windows is not None or route.diagonal or len(route.weight) > LANES:
        return None
    weights = F.pad(route.weight.float(), (0, LANES - layout.channels)).numpy()  # [C_in, tap, lane], taps backwards
    units = units_of(weights[None])[0]
    whole = weights[:, ::-1] / units  # exact: a power of two
    if np.abs(whole).sum(0).max(initial=0.0) > LARGEST or units.min() < TINY:
        return None
    padded = np.zeros((2, BYTE, TAPS, LANES), np.int32)
    padded.reshape(2 * BYTE, TAPS, LANES)[: len(whole)] = whole
    bits = np.arange(1 << BYTE)[:, None] >> np.arange(BYTE) & 1  # [byte, channel]
    table = np.einsum("bc,hctl->thbl", bits, padded).astype(np.int16)
    height, width = layout.shape[1:]
    return Lookup(aligned(table), aligned(units * np.float32(route.share)), window, height, width)
