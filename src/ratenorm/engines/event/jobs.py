"""The jobs that threads share: read from the board, cut into parts, done.

A helper that had to ask Python for its arguments would wait for the interpreter's lock, and one that sleeps takes as
long to wake as a small layer takes to run. So a helper runs one compiled function all along: it waits, awake, until the
turn changes, does its part of the job on the board, and says so.
"""
# mypy: disable-error-code="call-arg, return-value, assignment, arg-type, var-annotated"

from __future__ import annotations

from numpy import uintp

from ratenorm.engines.event.arrays import Array
from ratenorm.engines.event.board import (
    FIRST_NUMBER,
    LINE,
    acquire,
    float32,
    int16,
    int64,
    release,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ratenorm.engines.event.compiled import compiled
from ratenorm.engines.event.fire import Base, Neurons, Scratch, Sizes, fire_listed, fire_still, gather_currents
from ratenorm.engines.event.listing import list_pooled, list_spikes
from ratenorm.engines.event.measure import tally, tally_each
from ratenorm.engines.event.scatter import ZERO, Feed

STILL, LISTED, CURRENTS, TALLY, TALLY_EACH, LIST, POOLED = range(7)  # kinds of jobs
REST = -1  # a turn that is no job: go back to Python and wait there

# What the arrays of a job are:
# STILL:          potential, counts, threshold, spikes, current
# LISTED:         potential, counts, threshold, spikes, base, extra, total, recent, then those of a feed
# CURRENTS:       -, -, -, -, -, out, total, recent, then those of a feed
# a feed:         places, entries, ranges, marks, sections, factors, first, cut, segments, shares, weights, short,
#                 units, diagonal, skip, skip_scale
# TALLY:          spikes, fan_out, counts and operations
# LIST, POOLED:   spikes, entries, starts, ranges, marks, table, windows


@compiled
def perform(board: Array, part: int) -> None:
    """Do one part of the job on the board."""
    kind = board[0]
    if kind == STILL:
        _still(board, part)
    elif kind in (LISTED, CURRENTS):
        _listed(board, part)
    elif kind in (TALLY, TALLY_EACH):
        _tally(board, part)
    else:
        _list(board, part)


@compiled
def _share(board: Array, part: int, count: int) -> tuple[int, int]:
    """Which of `count` blocks or rows a part takes."""
    return part * count // board[1], (part + 1) * count // board[1]


@compiled
def _still(board: Array, part: int) -> None:
    n = board[FIRST_NUMBER:]
    sizes = Sizes(n[0], n[1], n[2], n[3], n[4])
    first, last = _share(board, part, sizes.blocks)
    neurons = Neurons(float32(board, 0), float32(board, 1), float32(board, 2), n[5], n[6], uint16(board, 3))
    fire_still(sizes, first, last, neurons, float32(board, 4))


@compiled
def _listed(board: Array, part: int) -> None:
    n = board[FIRST_NUMBER:]
    sizes = Sizes(n[0], n[1], n[2], n[3], n[4])
    first, last = _share(board, part, sizes.blocks)
    total, recent = float32(board, 6), uint8(board, 7)
    begin, end = part * n[16], (part + 1) * n[16]
    scratch = Scratch(total[begin:end], recent[begin:end], uint32(board, 8))
    ranges, sections, segments = uint64(board, 10), int64(board, 12), uint32(board, 16)
    feed = Feed(
        uint32(board, 9),
        ranges.reshape((len(ranges) // 2, 2)),
        uint32(board, 11),
        n[10],
        sections.reshape((len(sections) // n[11], n[11])),
        float32(board, 13),
        uint32(board, 14),
        uint8(board, 15),
        segments.reshape((len(segments) // 3, 3)),
        float32(board, 17),
        float32(board, 18),
        n[12],
        int16(board, 19),
        n[13],
        n[14],
        float32(board, 20),
        float32(board, 21),
        uint16(board, 22),
        float32(board, 23),
        n[15] != 0,
    )
    if board[0] == CURRENTS:
        gather_currents(sizes, first, last, scratch, feed, float32(board, 5))
        return
    neurons = Neurons(float32(board, 0), float32(board, 1), float32(board, 2), n[5], n[6], uint16(board, 3))
    base = Base(float32(board, 4), n[7], n[8], n[9])
    fire_listed(sizes, first, last, neurons, base, float32(board, 5), scratch, feed)


@compiled
def _tally(board: Array, part: int) -> None:
    n = board[FIRST_NUMBER:]
    first, last = _share(board, part, n[0])
    noted = int64(board, 2)
    if board[0] == TALLY:
        tally(uint16(board, 0), first, last, n[1], int64(board, 1), noted[: n[0]], noted[n[0] :])
    else:
        tally_each(uint16(board, 0), first, last, n[1], int64(board, 1), noted[: n[0]], noted[n[0] :])


@compiled
def _list(board: Array, part: int) -> None:
    n = board[FIRST_NUMBER:]
    first, last = _share(board, part, n[0])
    ranges, windows = uint64(board, 3), uint32(board, 6)
    pairs = ranges.reshape((len(ranges) // 2, 2))
    entries, starts, marks, table = uint32(board, 1), uint64(board, 2), uint32(board, 4), uint32(board, 5)
    if board[0] == LIST:
        spikes = uint16(board, 0)
        list_spikes(spikes, first, last, n[1], n[2], entries, starts, pairs, n[3], n[4], marks, n[5], n[6], table)
        return
    members = windows.reshape((len(windows) // n[9], n[9]))
    pooling, target = (n[8], members, n[7], n[10]), (n[3], n[4], marks, n[5], n[6], table)
    # words as wide as a pixel's channels fill: fewer of them to count
    if n[8] == 4:
        list_pooled(uint64(board, 0), first, last, n[1], n[2], *pooling, entries, starts, pairs, *target)
    elif n[8] == 2:
        list_pooled(uint32(board, 0), first, last, n[1], n[2], *pooling, entries, starts, pairs, *target)
    else:
        list_pooled(uint16(board, 0), first, last, n[1], n[2], *pooling, entries, starts, pairs, *target)


@compiled
def finished(flags: Array, turn: int, patience: int) -> bool:
    """Wait, awake, until all helpers have done this turn; False where it takes too long."""
    for helper in range(1, len(flags) // LINE):
        tries = 0
        while acquire(flags, uintp(helper * LINE)) != turn:
            tries += 1
            if tries == patience:
                return False
    return True


@compiled
def take_part(board: Array, flags: Array, part: int, turn: int, patience: int) -> bool:
    """What every thread of a crew runs: one function, so that the jobs are compiled once.

    The first part announces the job on the board as this turn (0: it works alone), does its share and waits for the
    others; False as of `finished`. Any other part does its share of every job as it comes, until there was none for
    long; False where it is time to rest.
    """
    if part == 0:
        if turn > 0:
            release(flags, ZERO, turn)
        perform(board, 0)
        return turn == 0 or finished(flags, turn, patience)
    done = acquire(flags, uintp(part * LINE))
    tries = 0
    while tries < patience:
        now = acquire(flags, ZERO)
        if now == REST:
            return False
        if now == done:
            tries += 1
            continue
        if part < board[1]:
            perform(board, part)
        done, tries = now, 0
        release(flags, uintp(part * LINE), done)
    return True
