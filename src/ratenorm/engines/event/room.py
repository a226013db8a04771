"""Room for a chunk: the spikes of every population, and the lists of spikes of one stage.

It is large and needed only while a chunk is run, so a thread has one and uses it for all its images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ratenorm.engines.event.arrays import Array, bit_positions, zeros
from ratenorm.engines.event.board import where
from ratenorm.engines.event.crew import Crew
from ratenorm.engines.event.jobs import LIST, POOLED
from ratenorm.engines.event.routes import Route

if TYPE_CHECKING:
    from ratenorm.engines.event.state import PopulationState

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
        self._total: Array = zeros(0, np.float32)
        self._recent: Array = zeros(0, np.uint8)

    def spikes(self, population: str, words: int) -> Array:
        """Words for the spikes of a population, to be written over."""
        if len(self._spikes.get(population, ())) < words:
            self._spikes[population] = zeros(words, np.uint16)
        return self._spikes[population][:words]

    def scratch(self, size: int) -> list[int]:
        """Where the currents of a step and the counts of a chunk can be; the counts are zero, and left so."""
        if len(self._total) < size:
            self._total, self._recent = zeros(size, np.float32), zeros(size, np.uint8)
        return where(self._total, self._recent)

    def begin(self, rows: int, sections: int, marks: int) -> None:
        """Empty the lists for `rows` rows of `sections` lists each, which have `marks` pixels together."""
        self.used, self.mark_stride = 0, marks
        if len(self.marks) < rows * marks:
            self.marks = np.zeros(rows * marks, np.uint32)
        if len(self.ranges) < rows * sections:
            self.ranges = np.zeros((rows * sections, 2), np.uint64)

    def add(self, crew: Crew, source: PopulationState, route: Route, section: int, sections: int, mark: int) -> int:
        """List a population's spikes for a route; returns the number of entries."""
        layout, rows = source.layout, len(source.row_spikes)
        # A list has no more entries than its row has spikes; sixteen are written at a time.
        ends = self.used + np.cumsum(source.row_spikes + 16)
        starts = (ends - source.row_spikes - 16).astype(np.uint64)
        self._reserve(int(ends[-1]))
        numbers = [rows, layout.pixels, layout.words, section, sections, mark, self.mark_stride]
        arrays = (source.words, self.entries, starts, self.ranges, self.marks, _POSITIONS)
        if route.windows is None:
            crew.run(LIST, rows, numbers, where(*arrays))
        else:
            per = next(n for n in (4, 2, 1) if layout.words % n == 0)
            numbers[2] //= per
            pooled = [route.shift, per, route.windows.shape[1], route.digits]
            crew.run(POOLED, rows, numbers + pooled, where(*arrays, route.windows))
        self.used = int(ends[-1])
        lists = self.ranges[section : rows * sections : sections]
        return int((lists[:, 1] - lists[:, 0]).sum())

    def _reserve(self, size: int) -> None:
        if size > len(self.entries):
            grown = zeros(2 * size, np.uint32)
            grown[: self.used] = self.entries[: self.used]
            self.entries = grown
