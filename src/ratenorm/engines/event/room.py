"""Room for a chunk: the spikes of every population, and the lists of spikes of one stage.

It is large and needed only while a chunk is run, so a thread has one and uses it for all its images.
"""

from __future__ import annotations

import numpy as np

from ratenorm.engines.event import listing
from ratenorm.engines.event.arrays import Array, bit_positions, zeros
from ratenorm.engines.event.layout import Layout
from ratenorm.engines.event.routes import Route

_POSITIONS = bit_positions()
_FIRST_SIZE = 1 << 18


class Room:
    """Grows where it must. `entries` are lists, `ranges` where each lies, `marks` where the part of a pixel ends."""

    def __init__(self) -> None:
        self.entries: Array = zeros(_FIRST_SIZE, np.uint32)
        self.ranges: Array = np.zeros((0, 2), np.uint64)
        self.marks: Array = np.zeros(0, np.uint32)
        self.mark_stride = 0
        self.used = 0
        self._spikes: dict[str, Array] = {}

    def spikes(self, population: str, words: int) -> Array:
        """Words for the spikes of a population, to be written over."""
        if len(self._spikes.get(population, ())) < words:
            self._spikes[population] = zeros(words, np.uint16)
        return self._spikes[population][:words]

    def begin(self, rows: int, sections: int, marks: int) -> None:
        """Empty the lists for `rows` rows of `sections` lists each, which have `marks` pixels together."""
        self.used, self.mark_stride = 0, marks
        if len(self.marks) < rows * marks:
            self.marks = np.zeros(rows * marks, np.uint32)
        if len(self.ranges) < rows * sections:
            self.ranges = np.zeros((rows * sections, 2), np.uint64)

    def add(
        self, spikes: Array, layout: Layout, rows: int, route: Route, section: int, sections: int, mark: int
    ) -> int:
        """List a population's spikes for a route; returns the number of entries."""
        before, row = self.used, 0
        where = (self.ranges, section, sections, self.marks, mark, self.mark_stride, _POSITIONS)
        # words as wide as a pixel's channels fill: fewer of them to count
        wide = next(kind for kind in (np.uint64, np.uint32, np.uint16) if layout.lanes % (8 * kind().itemsize) == 0)
        per = wide().itemsize // 2
        digits = np.zeros(route.digits, wide)
        while True:
            if route.windows is None:
                row, used = listing.list_spikes(
                    spikes, row, rows, layout.pixels, layout.words, self.entries, self.used, *where
                )
            else:
                row, used = listing.list_pooled(
                    spikes.view(wide),
                    row,
                    rows,
                    layout.pixels,
                    layout.words // per,
                    per,
                    route.windows,
                    route.shift,
                    digits,
                    self.entries,
                    self.used,
                    *where,
                )
            self.used = int(used)
            if row == rows:
                return self.used - before
            most = route.digits * route.grid * layout.lanes + 16
            grown = zeros(2 * len(self.entries) + most, np.uint32)
            grown[: self.used] = self.entries[: self.used]
            self.entries = grown
