"""The jobs of a chunk: read from a board, cut into parts, done.

A job is given the address of its board and the number of its part. It is compiled when it is first needed. Most are
shared by threads; `ready` and `decide` are done by one, between the others, and write on the boards that follow.
"""
# mypy: disable-error-code="call-arg, return-value, assignment, arg-type, var-annotated"

from __future__ import annotations

from numpy import float32, int16, int32, int64, uint8, uint16, uint32, uint64

from ratenorm.engines.event.arrays import Array
from ratenorm.engines.event.board import BYTES, array_of, read, stop
from ratenorm.engines.event.compiled import compiled
from ratenorm.engines.event.fire import (
    Adder,
    Base,
    LookupTables,
    Neurons,
    Sizes,
    fire_listed,
    fire_looked_up,
    fire_still,
    gather_currents,
)
from ratenorm.engines.event.listing import list_pooled, list_spikes
from ratenorm.engines.event.measure import tally
from ratenorm.engines.event.scatter import Feed, Scratch, scatter

DONE = 1  # what a job returns: an exception in it cannot leave the thread, and nothing is returned then
GROW, COMPUTE, DENSE = 2, 3, 4  # why one stops the chunk: entries are too few; torch has something to compute, or all

# Numbers of jobs on neurons: images, steps, pixels, blocks, width; distances of thresholds (block, pixel) and of base
# (image, block, pixel); stride of marks, columns of sections, sizes of a block's weights (float32, 16 bits, 16 bits
# used), size of a part's scratch; whether to fetch the weights, steps together, whether all begins with zeros; the
# address of `add`.
# Arrays: potential, counts, threshold, spikes, base, extra; total, whole, recent, places; then those of a feed.
COLUMNS, BLOCK_SIZE, SHORT_SIZE, SHORT_USED = 11, 12, 13, 14
SCRATCH_SIZE, FETCH, TOGETHER, FRESH, ADD = 15, 16, 17, 18, 19
POTENTIAL, COUNTS, BASE, EXTRA, MODES, SECTIONS = 0, 1, 4, 5, 13, 14
# Numbers of lists: rows, pixels, words, section, sections, mark, stride of marks, first entry; of pooled ones the
# distance of digits, words of 16 bits in one, members of a window, digits; pixels listed, picoseconds a spike takes.
# Arrays: spikes in words as wide as a pixel's channels fill (fewer of them to count), entries, spikes by row, ranges,
# marks, table, windows.
FIRST_ENTRY, LISTED_PIXELS, SPIKE_COST = 7, 12, 13
# Numbers of `ready`: lists, entries needed. Of `decide`: lists, rows, picoseconds torch would take, whether it has
# something to compute anyway, most steps together.
ENTRIES_NEEDED, TORCH_TAKES, COMPUTED, MOST_TOGETHER = 1, 2, 3, 4
LISTED_ENTRIES, BY_ROW, RANGES = 1, 2, 3

WEIGHTS_A_SPIKE = 1024  # of a block: where there are fewer, most are needed, so they are read through in order
MANY = 1.2  # spikes a pixel and step from which it pays to keep the currents in registers
SLIDE = 3.0  # from which it pays to keep those of its neighbours there too


@compiled
def ready(board: int, part: int) -> int:
    """Give the lists on the next boards their places among the entries."""
    n = read(board)[1]
    used, room = 0, 0
    for k in range(n[0]):
        _, own, arrays = read(board + (k + 1) * BYTES)
        own[FIRST_ENTRY], room = used, arrays[LISTED_ENTRIES, 1]
        by_row = array_of(arrays[BY_ROW], int64)
        for row in range(own[0]):
            used += by_row[row] + 16  # a list has no more entries than its row has spikes; see listing.py
    n[ENTRIES_NEEDED] = used
    if used > room:
        stop(board, GROW)
    return DONE


@compiled
def decide(board: int, part: int) -> int:
    """How the neurons on the next board are run, by what the boards before have listed."""
    n = read(board)[1]
    lists, rows = n[0], n[1]
    _, fire, arrays = read(board + BYTES)
    modes = array_of(arrays[MODES], int64)
    listed, cost = 0, 0
    for k in range(lists):
        _, own, places = read(board - (lists - k) * BYTES)
        ranges, found = array_of(places[RANGES], uint64), 0
        for row in range(rows):
            at = 2 * (row * lists + k)
            found += int64(ranges[at + 1]) - int64(ranges[at])
        # Take the spikes of a pixel together where there are several on average, else one by one.
        pixels = rows * own[LISTED_PIXELS]
        modes[k] = int64(found > MANY * pixels) + int64(found > SLIDE * pixels)
        listed += found
        cost += found * own[SPIKE_COST]
    dense = cost > n[TORCH_TAKES]
    arrays[SECTIONS, 1] = 0 if dense else lists * fire[COLUMNS]
    arrays[EXTRA, 1] = 0
    fire[FETCH] = int64(listed * WEIGHTS_A_SPIKE > fire[BLOCK_SIZE] + fire[SHORT_USED])
    together = lists > 0 and modes[0] > 0 and not dense and n[COMPUTED] == 0
    fire[TOGETHER] = n[MOST_TOGETHER] if together else 1
    if dense:
        stop(board, DENSE)
    elif n[COMPUTED] != 0:
        stop(board, COMPUTE)
    return DONE


@compiled
def _share(part: int, parts: int, count: int) -> tuple[int, int]:
    """Which of `count` blocks or rows a part takes."""
    return part * count // parts, (part + 1) * count // parts


@compiled
def _sizes(n: Array, part: int, parts: int) -> tuple[Sizes, int, int]:
    """Of a population, and which of its blocks a part takes."""
    sizes = Sizes(n[0], n[1], n[2], n[3], n[4])
    first, last = _share(part, parts, sizes.blocks)
    return sizes, first, last


@compiled
def _neurons(n: Array, a: Array) -> Neurons:
    potential, counts, threshold = array_of(a[0], float32), array_of(a[1], float32), array_of(a[2], float32)
    return Neurons(potential, counts, threshold, n[5], n[6], array_of(a[3], uint16))


@compiled
def _scratch(n: Array, a: Array, part: int) -> Scratch:
    begin, end = part * n[SCRATCH_SIZE], (part + 1) * n[SCRATCH_SIZE]
    total, whole = array_of(a[6], float32)[begin:end], array_of(a[7], int32)[begin * n[TOGETHER] : end * n[TOGETHER]]
    return Scratch(total, whole, array_of(a[8], uint8)[begin:end], array_of(a[9], uint32))


@compiled
def _feed(n: Array, a: Array) -> Feed:
    ranges, sections, segments = array_of(a[11], uint64), array_of(a[14], int64), array_of(a[18], uint32)
    return Feed(
        array_of(a[10], uint32),
        ranges.reshape((len(ranges) // 2, 2)),
        array_of(a[12], uint32),
        n[10],
        array_of(a[13], int64),
        sections.reshape((len(sections) // n[COLUMNS], n[COLUMNS])),
        array_of(a[15], float32),
        array_of(a[16], uint32),
        array_of(a[17], uint8),
        segments.reshape((len(segments) // 3, 3)),
        array_of(a[19], float32),
        array_of(a[20], float32),
        n[BLOCK_SIZE],
        array_of(a[21], int16),
        n[SHORT_SIZE],
        n[SHORT_USED],
        array_of(a[22], float32),
        array_of(a[23], float32),
        array_of(a[24], uint16),
        array_of(a[25], float32),
        n[FETCH] != 0,
    )


@compiled
def add(board: int, part: int, block: int, row: int, rows: int, settle: int) -> int:
    """No job of its own: `scatter` for the two that follow, which call it by its address. It is the largest kernel, and
    would be translated again for each."""
    _, n, a = read(board)
    scatter(_scratch(n, a, part), block, n[4], row, rows, _feed(n, a), settle != 0)
    return DONE


@compiled
def still(board: int, part: int) -> int:
    """Neurons whose current does not change; the arrays up to base."""
    parts, n, a = read(board)
    sizes, first, last = _sizes(n, part, parts)
    fire_still(sizes, first, last, _neurons(n, a), Base(array_of(a[BASE], float32), n[7], n[8], n[9]), n[FRESH] != 0)
    return DONE


@compiled
def listed(board: int, part: int) -> int:
    """Neurons that spikes drive."""
    parts, n, a = read(board)
    sizes, first, last = _sizes(n, part, parts)
    base, extra = Base(array_of(a[BASE], float32), n[7], n[8], n[9]), array_of(a[EXTRA], float32)
    feed, scratch, adder = _feed(n, a), _scratch(n, a, part), Adder(n[ADD], board, part)
    fire_listed(sizes, first, last, _neurons(n, a), base, extra, scratch, feed, adder, n[TOGETHER], n[FRESH] != 0)
    return DONE


@compiled
def looked_up(board: int, part: int) -> int:
    """Neurons whose currents are looked up: they are not shared by parts. Numbers of lookup.Lookup from COLUMNS - 1 on;
    arrays behind base: spikes of the source, a room for pictures, rows, units, skip, what it brings."""
    _, n, a = read(board)
    sizes, _, _ = _sizes(n, 0, 1)
    base = Base(array_of(a[BASE], float32), n[7], n[8], n[9])
    rows, units, brings = array_of(a[7], int16), array_of(a[8], float32), array_of(a[10], float32)
    tables = LookupTables(rows, units, brings, n[10], n[11], n[12], n[13], n[14], n[15])
    source, plane = array_of(a[5], uint16), array_of(a[6], uint16)
    fire_looked_up(sizes, _neurons(n, a), base, source, plane, tables, array_of(a[9], uint16), n[FRESH] != 0)
    return DONE


@compiled
def currents(board: int, part: int) -> int:
    """The currents of an output, which go to the first array."""
    parts, n, a = read(board)
    sizes, first, last = _sizes(n, part, parts)
    adder = Adder(n[ADD], board, part)
    gather_currents(sizes, first, last, _scratch(n, a, part), adder, array_of(a[POTENTIAL], float32))
    return DONE


@compiled
def tallied(board: int, part: int) -> int:
    """What neurons did. Numbers: rows, pixels, words, whether fan-out is one number a word; arrays: spikes, fan-out,
    [(spikes, synaptic operations), row]."""
    parts, n, a = read(board)
    first, last = _share(part, parts, n[0])
    noted = array_of(a[2], int64)
    tally(
        array_of(a[0], uint16), first, last, n[1] * n[2], array_of(a[1], int64), n[3] != 0, noted[: n[0]], noted[n[0] :]
    )
    return DONE


@compiled
def plain_list(board: int, part: int) -> int:
    parts, n, a = read(board)
    first, last = _share(part, parts, n[0])
    target = _target(n, a)
    by_row = array_of(a[2], int64)
    list_spikes(array_of(a[0], uint16), first, last, n[1], n[2], array_of(a[1], uint32), by_row, n[7], *target)
    return DONE


@compiled
def _target(n: Array, a: Array) -> tuple[Array, int, int, Array, int, int, Array]:
    """Where a list goes: ranges, section, sections, marks, mark, stride of marks; and the table of bits."""
    ranges = array_of(a[3], uint64)
    return ranges.reshape((len(ranges) // 2, 2)), n[3], n[4], array_of(a[4], uint32), n[5], n[6], array_of(a[5], uint32)


@compiled
def _pooled_list(spikes: Array, parts: int, n: Array, a: Array, part: int) -> None:
    first, last = _share(part, parts, n[0])
    windows = array_of(a[6], uint32)
    pooling = n[9], windows.reshape((len(windows) // n[10], n[10])), n[8], n[11]
    by_row = array_of(a[2], int64)
    target = _target(n, a)
    list_pooled(spikes, first, last, n[1], n[2], *pooling, array_of(a[1], uint32), by_row, n[7], *target)


@compiled
def pooled_list_16(board: int, part: int) -> int:
    parts, n, a = read(board)
    _pooled_list(array_of(a[0], uint16), parts, n, a, part)
    return DONE


@compiled
def pooled_list_32(board: int, part: int) -> int:
    parts, n, a = read(board)
    _pooled_list(array_of(a[0], uint32), parts, n, a, part)
    return DONE


@compiled
def pooled_list_64(board: int, part: int) -> int:
    parts, n, a = read(board)
    _pooled_list(array_of(a[0], uint64), parts, n, a, part)
    return DONE
