"""The jobs of a chunk, written down before it begins, and the room they need.

A script depends on the network and on the sizes of a chunk only, so it is used for all chunks of that size: what
differs, the images' own state, is put on its boards by `begin`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ratenorm.engines.event import jobs
from ratenorm.engines.event.arrays import NOTHING, Array, bit_positions, zeros
from ratenorm.engines.event.board import FIRST_ARRAY, FIRST_NUMBER, Where, new_boards, where, write
from ratenorm.engines.event.compiled import Job, code_of
from ratenorm.engines.event.lookup import Lookup
from ratenorm.engines.event.plan import Stage
from ratenorm.engines.event.routes import Route

_POSITIONS = bit_positions()
_FIRST_SIZE = 1 << 18  # entries
_POOLED = {4: jobs.pooled_list_64, 2: jobs.pooled_list_32, 1: jobs.pooled_list_16}  # by words of 16 bits in one
_NEVER = 1 << 62  # picoseconds
_KEPT = 2  # scripts of a room: chunks of full size, and what is left at the end


class Chunk(NamedTuple):
    """Its size; `parts` threads share it. `choose` between events and convolution, else events where possible."""

    images: int
    steps: int
    parts: int
    choose: bool


class State(NamedTuple):
    """Where the potentials and counts of a population lie, and whether they are still to be set to zero."""

    where: Where
    fresh: bool


def _array(k: int) -> int:
    """The column of a board with the address of its k-th array; its length is in the next."""
    return FIRST_ARRAY + 2 * k


_STATES = slice(_array(jobs.POTENTIAL), _array(jobs.COUNTS) + 2)


class Script:
    """Boards for all stages, in order. Of each: `ready`, its lists, `decide`, its neurons, what they did."""

    def __init__(self, stages: Sequence[Stage], chunk: Chunk) -> None:
        self.chunk, rows = chunk, chunk.images * chunk.steps
        firing = [stage for stage in stages if stage.fires]
        self.words = {s.name: zeros(rows * s.layout.pixels * s.layout.words, np.uint16) for s in firing}
        self.noted: Array = np.zeros((len(firing), 2, rows), np.int64)  # [population, (spikes, operations), row]
        self.out: Array = NOTHING  # the currents of an output
        self.asking: dict[int, int] = {}  # by the board of a `decide`: its stage
        self._noted = {stage.name: noted for stage, noted in zip(firing, self.noted, strict=True)}
        self._layouts = {stage.name: stage.layout for stage in firing}
        self._fires: list[int] = []  # boards of populations
        self._bases: dict[int, int] = {}  # by stages whose constant current depends on the images: their boards
        self._readers: list[tuple[int, int]] = []  # of entries: board, and which of its arrays they are
        self._scratch(stages, rows)
        self._written: list[Array] = []
        self._held: list[Array] = []  # whose addresses are on the boards, beside the entries, which may be exchanged
        for k, stage in enumerate(stages):
            self._add_stage(k, stage)
        self.boards = new_boards(len(self._written))
        for at, board in enumerate(self._written):
            self.boards[at] = board
        self._written.clear()

    def _scratch(self, stages: Sequence[Stage], rows: int) -> None:
        """Entries are lists, ranges say where each lies, marks where the part of a pixel ends; modes say how lists are
        read. Then room for the currents of a step, or of several in whole numbers; and for counts, which are left zero.
        All serve one stage after the other."""
        tables, parts = [stage.tables for stage in stages if stage.lookup is None], self.chunk.parts
        lists = max((len(t.sections) for t in tables), default=0)
        self._entries = zeros(_FIRST_SIZE, np.uint32)
        self._ranges: Array = np.zeros((rows * lists, 2), np.uint64)
        self._marks: Array = np.zeros(rows * max((t.marks for t in tables), default=0), np.uint32)
        self.modes: Array = np.zeros(lists, np.int64)
        size = parts * max((t.total for t in tables), default=0)
        self._total, self._recent = zeros(size, np.float32), zeros(size, np.uint8)
        planes = max((self._together(s) * s.tables.total for s in stages if s.lookup is None), default=0)
        self._whole = zeros(parts * planes, np.int32)

    def _together(self, stage: Stage) -> int:
        return min(self.chunk.steps, stage.together)

    def _add(self, job: Job, parts: int, numbers: Sequence[int], arrays: Sequence[Array]) -> int:
        """The next board."""
        [board] = new_boards(1)
        write(board, code_of(job), parts, numbers, where(*arrays))
        self._written.append(board)
        self._held += [values for values in arrays if values is not self._entries]
        at = len(self._written) - 1
        self._readers += [(at, k) for k, values in enumerate(arrays) if values is self._entries]
        return at

    def _add_stage(self, k: int, stage: Stage) -> None:
        layout, rows = stage.layout, self.chunk.images * self.chunk.steps
        parts = min(self.chunk.parts, layout.blocks)
        if not stage.fires and not stage.listed:
            return  # torch computes such an output
        if stage.driven and stage.lookup is None:
            self._add_lists(stage, rows)
            self.asking[self._add_decide(stage, rows)] = k
        if not stage.fires:
            self.out = zeros(rows * layout.size, np.float32)
            self._add(jobs.currents, parts, self._numbers(stage), self._arrays(stage, [self.out, *5 * [NOTHING]]))
            return
        words, threshold = self.words[stage.name], stage.thresholds.values
        base = NOTHING if stage.base is None else stage.base_everywhere.values
        own = [NOTHING, NOTHING, threshold, words, base]
        if stage.lookup is not None:
            self._fires.append(self._add_lookup(stage, stage.lookup, own))
        else:
            job, arrays = jobs.listed if stage.driven else jobs.still, self._arrays(stage, [*own, NOTHING])
            self._fires.append(self._add(job, parts, self._numbers(stage), arrays))
        if stage.base is None:
            self._bases[k] = self._fires[-1]
        numbers = [rows, layout.pixels, layout.words, int(stage.fan_out_by_word)]
        parts = min(self.chunk.parts, rows)
        self._add(jobs.tallied, parts, numbers, [words, stage.fan_out, self._noted[stage.name]])

    def _add_lookup(self, stage: Stage, lookup: Lookup, own: list[Array]) -> int:
        pictures = zeros(self.chunk.steps * lookup.plane, np.uint16)  # of its own: the padding stays zero
        skip = NOTHING if stage.skip is None else self.words[stage.skip.source]
        source = self.words[stage.listed[0].source]
        arrays = [*own, source, pictures, lookup.table, lookup.units, skip, stage.skip_scale]
        return self._add(jobs.looked_up, 1, self._numbers(stage, lookup.numbers), arrays)

    def _add_lists(self, stage: Stage, rows: int) -> None:
        self._add(jobs.ready, 1, [len(stage.listed), 0], [])
        for k, route in enumerate(stage.listed):
            self._add_list(stage, k, route, rows)

    def _add_list(self, stage: Stage, k: int, route: Route, rows: int) -> None:
        tables, layout = stage.tables, self._layouts[route.source]
        mark, apart = tables.lists[k]
        job, per, windows = jobs.plain_list, 1, NOTHING.reshape(0, 1)
        if route.windows is not None:
            per = next(n for n in _POOLED if layout.words % n == 0)
            job, windows = _POOLED[per], route.windows
        numbers = [rows, layout.pixels, layout.words // per, k, len(stage.listed), mark, tables.marks, 0]
        pooled = [apart, per, windows.shape[1], route.digits]
        cost = [route.grid, round(1000 * stage.spike_costs[k])]
        lists = [self._entries, self._noted[route.source][0], self._ranges, self._marks]
        arrays = [self.words[route.source], *lists, _POSITIONS, windows]
        self._add(job, min(self.chunk.parts, rows), [*numbers, *pooled, *cost], arrays)

    def _add_decide(self, stage: Stage, rows: int) -> int:
        by_row, once = stage.dense_costs
        torch_takes = round(1000 * (rows * by_row + once)) if self.chunk.choose and stage.listed else _NEVER
        numbers = [len(stage.listed), rows, torch_takes, int(bool(stage.computed)), self._together(stage)]
        return self._add(jobs.decide, 1, numbers, [])

    def _numbers(self, stage: Stage, tables: Sequence[int] | None = None) -> list[int]:
        layout = stage.layout
        tables = stage.tables.numbers if tables is None else tables
        base = (layout.size, layout.width, layout.lanes) if stage.base is None else stage.base_everywhere[1:]
        sizes = [self.chunk.images, self.chunk.steps, layout.pixels, layout.blocks, layout.width]
        apart = (stage.thresholds.block, stage.thresholds.pixel) if stage.fires else (0, 0)
        return [*sizes, *apart, *base, *tables, 0, 1, 0, code_of(jobs.add, 6)]

    def _arrays(self, stage: Stage, own: list[Array]) -> list[Array]:
        lists = [self._entries, self._ranges, self._marks, self.modes]
        scratch = [self._total, self._whole, self._recent, stage.tables.places]
        skip = NOTHING if stage.skip is None else self.words[stage.skip.source]
        return [*own, *scratch, *lists, *stage.tables.arrays, skip, stage.skip_scale]

    def begin(self, states: Sequence[State], bases: Mapping[int, Array]) -> None:
        """Before a chunk: the states of all populations, and the constant currents that depend on the images."""
        for board, state in zip(self._fires, states, strict=True):
            self.boards[board, _STATES] = state.where
            self.boards[board, FIRST_NUMBER + jobs.FRESH] = state.fresh
        for k, values in bases.items():
            self._put(self._bases[k], jobs.BASE, values)

    def put_extra(self, board: int, values: Array) -> None:
        """What torch has computed for the neurons of a `decide`; must live until they have fired."""
        self._put(board + 1, jobs.EXTRA, values)

    def grow(self, board: int) -> None:
        """More entries, as many as a `ready` needs and some for the next."""
        self._entries = zeros(2 * int(self.boards[board, FIRST_NUMBER + jobs.ENTRIES_NEEDED]), np.uint32)
        for reader, k in self._readers:
            self._put(reader, k, self._entries)

    def _put(self, board: int, k: int, values: Array) -> None:
        self.boards[board, _array(k) : _array(k) + 2] = where(values)


class Room:
    """The scripts of a thread, to be used again."""

    def __init__(self) -> None:
        self.scripts: dict[Chunk, Script] = {}

    def script(self, stages: Sequence[Stage], chunk: Chunk) -> Script:
        """One for chunks of this size, of one and the same network."""
        if chunk not in self.scripts:
            if len(self.scripts) == _KEPT:
                del self.scripts[next(iter(self.scripts))]
            self.scripts[chunk] = Script(stages, chunk)
        return self.scripts[chunk]
