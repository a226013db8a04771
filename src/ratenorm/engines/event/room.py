"""Room for a chunk: the spikes of every population, and the lists of spikes of one stage.

Where an array lies is kept beside it: to ask takes a microsecond, ten where the kernels have just filled the caches.

It is large and needed only while a chunk is run, so a thread has one and uses it for all its images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ratenorm.engines.event import jobs
from ratenorm.engines.event.arrays import Array, bit_positions, zeros
from ratenorm.engines.event.board import Where, where
from ratenorm.engines.event.crew import Crew
from ratenorm.engines.event.routes import Route
from ratenorm.engines.event.tables import Tables

if TYPE_CHECKING:
    from ratenorm.engines.event.state import PopulationState

_POSITIONS = bit_positions()
_WHERE_POSITIONS = where(_POSITIONS)
_FIRST_SIZE = 1 << 18
_POOLED = {4: jobs.pooled_list_64, 2: jobs.pooled_list_32, 1: jobs.pooled_list_16}  # by words of 16 bits in one


@dataclass(eq=False)
class Spikes:
    """What a population did in a chunk."""

    words: Array  # [row, pixel, word], and more where an earlier chunk was larger
    noted: Array  # [part, (spikes, synaptic operations), row]
    by_row: Array  # the same, of all parts
    where_words: Where
    where_noted: Where
    where_by_row: Where  # of the spikes only
    total: int = 0  # spikes

    @classmethod
    def of(cls, words: int, parts: int, rows: int) -> Spikes:
        """Room for so many words and rows."""
        fresh, noted = zeros(words, np.uint16), np.zeros((parts, 2, rows), np.int64)
        by_row = np.zeros((2, rows), np.int64)
        return cls(fresh, noted, by_row, where(fresh), where(noted), where(by_row[0]))


class Room:
    """Grows where it must. Entries are lists, ranges say where each lies, marks where the part of a pixel ends; modes
    say how the lists of a section are read."""

    def __init__(self) -> None:
        self.used = self.mark_stride = 0
        self._entries: Array = zeros(_FIRST_SIZE, np.uint32)
        self._ranges: Array = np.zeros((0, 2), np.uint64)
        self._marks: Array = np.zeros(0, np.uint32)
        self.modes: Array = np.zeros(0, np.int64)
        self._spikes: dict[str, Spikes] = {}
        self._total: Array = zeros(0, np.float32)
        self._whole: Array = zeros(0, np.int32)
        self._recent: Array = zeros(0, np.uint8)
        self._locate()

    def _locate(self) -> None:
        self._where_entries, self._where_marks = where(self._entries), where(self._ranges, self._marks)
        self.where_lists = [*self._where_entries, *self._where_marks, *where(self.modes)]
        self._where_scratch = where(self._total, self._whole, self._recent)

    def spikes(self, population: str, words: int, parts: int, rows: int) -> Spikes:
        """For the spikes of a population, to be written over."""
        found = self._spikes.get(population)
        if found is None or len(found.words) < words or found.noted.shape != (parts, 2, rows):
            found = self._spikes[population] = Spikes.of(words, parts, rows)
        return found

    def scratch(self, size: int, planes: int) -> Where:
        """For the currents of a step, or of several in whole numbers; and for counts, which are zero and left so."""
        if len(self._total) < size:
            self._total, self._recent = zeros(size, np.float32), zeros(size, np.uint8)
            self._locate()
        if len(self._whole) < size * planes:
            self._whole = zeros(size * planes, np.int32)
            self._locate()
        return self._where_scratch

    def begin(self, rows: int, sections: int, marks: int) -> None:
        """Empty the lists for `rows` rows of `sections` lists each, which have `marks` pixels together."""
        self.used, self.mark_stride = 0, marks
        if len(self._marks) < rows * marks or len(self._ranges) < rows * sections or len(self.modes) < sections:
            self.modes = np.zeros(max(len(self.modes), sections), np.int64)
            self._marks = np.zeros(max(len(self._marks), rows * marks), np.uint32)
            self._ranges = np.zeros((max(len(self._ranges), rows * sections), 2), np.uint64)
            self._locate()

    def add(self, crew: Crew, source: PopulationState, route: Route, k: int, tables: Tables) -> int:
        """List a population's spikes for the k-th section, a route; returns the number of entries."""
        layout, spikes = source.layout, source.spiked
        rows = spikes.by_row.shape[1]
        count, (mark, apart) = len(tables.lists), tables.lists[k]
        size = spikes.total + 16 * rows  # a list has no more entries than its row has spikes
        self._reserve(self.used + size)
        numbers = [rows, layout.pixels, layout.words, k, count, mark, self.mark_stride, self.used]
        places = [*self._where_entries, *spikes.where_by_row, *self._where_marks]
        arrays = [*spikes.where_words, *places, *_WHERE_POSITIONS]
        self.used += size
        if route.windows is None:
            crew.run(jobs.plain_list, rows, numbers, arrays)
            return spikes.total
        per = next(n for n in _POOLED if layout.words % n == 0)
        numbers[2] //= per
        pooled = [apart, per, route.windows.shape[1], route.digits]
        crew.run(_POOLED[per], rows, numbers + pooled, arrays + route.where_windows)
        lists = self._ranges[k : rows * count : count]
        return int((lists[:, 1] - lists[:, 0]).sum())

    def _reserve(self, size: int) -> None:
        if size > len(self._entries):
            grown = zeros(2 * size, np.uint32)
            grown[: self.used] = self._entries[: self.used]
            self._entries = grown
            self._locate()
