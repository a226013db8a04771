"""Room for a chunk: the spikes of every population, and the lists of spikes of one stage.

It is large and needed only while a chunk is run, so a thread has one and uses it for all its images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ratenorm.engines.event import jobs
from ratenorm.engines.event.arrays import Array, bit_positions, zeros
from ratenorm.engines.event.board import Where, where
from ratenorm.engines.event.crew import Crew
from ratenorm.engines.event.routes import Route

if TYPE_CHECKING:
    from ratenorm.engines.event.state import PopulationState

_POSITIONS = bit_positions()
_WHERE_POSITIONS = where(_POSITIONS)
_FIRST_SIZE = 1 << 18
_POOLED = {4: jobs.pooled_list_64, 2: jobs.pooled_list_32, 1: jobs.pooled_list_16}  # by words of 16 bits in one


class Room:
    """Grows where it must. Entries are lists, ranges say where each lies, marks where the part of a pixel ends."""

    def __init__(self) -> None:
        self.used = self.mark_stride = 0
        self._entries: Array = zeros(_FIRST_SIZE, np.uint32)
        self._ranges: Array = np.zeros((0, 2), np.uint64)
        self._marks: Array = np.zeros(0, np.uint32)
        self._spikes: dict[str, tuple[Array, Where]] = {}
        self._total: Array = zeros(0, np.float32)
        self._whole: Array = zeros(0, np.int32)
        self._recent: Array = zeros(0, np.uint8)
        self._locate()

    def _locate(self) -> None:
        self.where_lists = where(self._entries, self._ranges, self._marks)
        self._where_scratch = where(self._total, self._whole, self._recent)

    def spikes(self, population: str, words: int) -> tuple[Array, Where]:
        """Words for the spikes of a population, to be written over."""
        if population not in self._spikes or len(self._spikes[population][0]) < words:
            fresh = zeros(words, np.uint16)
            self._spikes[population] = fresh, where(fresh)
        return self._spikes[population]

    def scratch(self, size: int, planes: int) -> Where:
        """For the currents of a step, or of several in whole numbers, and the counts of a chunk, which are zero and left
        so."""
        if len(self._total) < size or len(self._whole) < size * planes:
            self._total, self._recent = zeros(size, np.float32), zeros(size, np.uint8)
            self._whole = zeros(size * planes, np.int32)
            self._locate()
        return self._where_scratch

    def begin(self, rows: int, sections: int, marks: int) -> None:
        """Empty the lists for `rows` rows of `sections` lists each, which have `marks` pixels together."""
        self.used, self.mark_stride = 0, marks
        if len(self._marks) < rows * marks or len(self._ranges) < rows * sections:
            self._marks = np.zeros(max(len(self._marks), rows * marks), np.uint32)
            self._ranges = np.zeros((max(len(self._ranges), rows * sections), 2), np.uint64)
            self._locate()

    def add(self, crew: Crew, source: PopulationState, route: Route, k: int, sections: Array) -> int:
        """List a population's spikes for the k-th section, a route; returns the number of entries."""
        layout, rows = source.layout, len(source.row_spikes)
        size = int(source.row_spikes.sum()) + 16 * rows  # a list has no more entries than its row has spikes
        self._reserve(self.used + size)
        count, mark, apart = len(sections), int(sections[k, 7]), int(sections[k, 12])
        numbers = [rows, layout.pixels, layout.words, k, count, mark, self.mark_stride, self.used]
        entries, ranges, marks = (self.where_lists[k : k + 2] for k in (0, 2, 4))
        arrays = [*source.where_words, *entries, *where(source.row_spikes), *ranges, *marks, *_WHERE_POSITIONS]
        self.used += size
        if route.windows is None:
            crew.run(jobs.plain_list, rows, numbers, arrays)
            return size - 16 * rows
        per = next(n for n in _POOLED if layout.words % n == 0)
        numbers[2] //= per
        pooled = [apart, per, route.windows.shape[1], route.digits]
        crew.run(_POOLED[per], rows, numbers + pooled, arrays + where(route.windows))
        lists = self._ranges[k : rows * count : count]
        return int((lists[:, 1] - lists[:, 0]).sum())

    def _reserve(self, size: int) -> None:
        if size > len(self._entries):
            grown = zeros(2 * size, np.uint32)
            grown[: self.used] = self._entries[: self.used]
            self._entries = grown
            self._locate()
