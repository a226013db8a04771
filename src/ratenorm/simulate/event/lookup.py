"""Narrow layers by looking up: what eight spikes bring together is written in a table.

After a 3x3 convolution from at most sixteen channels to at most sixteen, a pixel's spikes are one word, and a neuron's
window is nine words: eighteen bytes. For each place of a byte the table has, for all 256 values it can take, the sum of
the weights of its spikes. So a pixel's sixteen currents are eighteen rows of the table, however many spikes there are,
and no spike is listed. Where layers are wide, tables would be too large and most of their rows of no use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch.nn import functional as F

from ratenorm.simulate.event.layout import WORD, Layout
from ratenorm.simulate.event.routes import Route
from ratenorm.simulate.event.short import LARGEST, TINY, units_of
from ratenorm.simulate.event.tables import flat

BYTE = 8
TAPS = 9


def lookup_of(layout: Layout, routes: Sequence[Route], sources: Mapping[str, int]) -> dict[str, Any] | None:
    """The fields of a stage's table that looks its currents up, or None where that is not for these routes."""
    if len(routes) != 1 or layout.lanes != WORD:
        return None
    [route] = routes
    window = route.window
    if window is None or route.windows is not None or route.diagonal or len(route.weight) > WORD:
        return None
    weights = F.pad(route.weight.float(), (0, WORD - layout.channels)).numpy()  # [C_in, tap, lane], taps backwards
    units = units_of(weights[None])[0]
    whole = weights[:, ::-1] / units  # exact: a power of two
    if np.abs(whole).sum(0).max(initial=0.0) > LARGEST or units.min() < TINY:
        return None
    padded = np.zeros((2, BYTE, TAPS, WORD), np.int32)
    padded.reshape(2 * BYTE, TAPS, WORD)[: len(whole)] = whole
    bits = np.arange(1 << BYTE)[:, None] >> np.arange(BYTE) & 1  # [byte, channel]
    table = np.einsum("bc,hctl->thbl", bits, padded)  # [tap, half of a word, byte, lane]
    return {
        "table": flat(table, np.int16),
        "units": flat(units, np.float32),
        "source": sources[route.source],
        "source_height": window.height,
        "source_width": window.width,
        "top": window.top,
        "left": window.left,
        "line": layout.shape[2],
    }
