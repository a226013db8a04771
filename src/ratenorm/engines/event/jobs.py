"""The jobs that threads share: read from the board, cut into parts, done.

A helper that had to ask Python for its arguments would wait for the interpreter's lock, and one that sleeps takes as
long to wake as a small layer takes to run. So a helper runs one compiled function all along: it waits, awake, until the
turn changes, does its part of the job on the board, and says so.
"""
# mypy: disable-error-code="call-arg, return-value, assignment, arg-type, var-annotated"

from __future__ import annotations

from numpy import float32, int16, int64, uint8, uint16, uint32, uint64, uintp

from ratenorm.engines.event.arrays import Array
from ratenorm.engines.event.board import FIRST_NUMBER, LINE, acquire, array_of, release
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
    neurons = Neurons(
        array_of(board, 0, float32),
        array_of(board, 1, float32),
        array_of(board, 2, float32),
        n[5],
        n[6],
        array_of(board, 3, uint16),
    )
    fire_still(sizes, first, last, neurons, array_of(board, 4, float32))


@compiled
def _listed(board: Array, part: int) -> None:
    n = board[FIRST_NUMBER:]
    sizes = Sizes(n[0], n[1], n[2], n[3], n[4])
    first, last = _share(board, part, sizes.blocks)
    total, recent = array_of(board, 6, float32), array_of(board, 7, uint8)
    begin, end = part * n[16], (part + 1) * n[16]
    scratch = Scratch(total[begin:end], recent[begin:end], array_of(board, 8, uint32))
    ranges, sections, segments = array_of(board, 10, uint64), array_of(board, 12, int64), array_of(board, 16, uint32)
    feed = Feed(
        array_of(board, 9, uint32),
        ranges.reshape((len(ranges) // 2, 2)),
        array_of(board, 11, uint32),
        n[10],
        sections.reshape((len(sections) // n[11], n[11])),
        array_of(board, 13, float32),
        array_of(board, 14, uint32),
        array_of(board, 15, uint8),
        segments.reshape((len(segments) // 3, 3)),
        array_of(board, 17, float32),
        array_of(board, 18, float32),
        n[12],
        array_of(board, 19, int16),
        n[13],
        n[14],
        array_of(board, 20, float32),
        array_of(board, 21, float32),
        array_of(board, 22, uint16),
        array_of(board, 23, float32),
        n[15] != 0,
    )
    if board[0] == CURRENTS:
        gather_currents(sizes, first, last, scratch, feed, array_of(board, 5, float32))
        return
    neurons = Neurons(
        array_of(board, 0, float32),
        array_of(board, 1, float32),
        array_of(board, 2, float32),
        n[5],
        n[6],
        array_of(board, 3, uint16),
    )
    base = Base(array_of(board, 4, float32), n[7], n[8], n[9])
    fire_listed(sizes, first, last, neurons, base, array_of(board, 5, float32), scratch, feed)


@compiled
def _tally(board: Array, part: int) -> None:
    n = board[FIRST_NUMBER:]
    first, last = _share(board, part, n[0])
    noted = array_of(board, 2, int64)
    if board[0] == TALLY:
        tally(array_of(board, 0, uint16), first, last, n[1], array_of(board, 1, int64), noted[: n[0]], noted[n[0] :])
    else:
        tally_each(
            array_of(board, 0, uint16), first, last, n[1], array_of(board, 1, int64), noted[: n[0]], noted[n[0] :]
        )


@compiled
def _list(board: Array, part: int) -> None:
    n = board[FIRST_NUMBER:]
    first, last = _share(board, part, n[0])
    ranges, windows = array_of(board, 3, uint64), array_of(board, 6, uint32)
    pairs = ranges.reshape((len(ranges) // 2, 2))
    entries, starts, marks, table = (
        array_of(board, 1, uint32),
        array_of(board, 2, uint64),
        array_of(board, 4, uint32),
        array_of(board, 5, uint32),
    )
    if board[0] == LIST:
        spikes = array_of(board, 0, uint16)
        list_spikes(spikes, first, last, n[1], n[2], entries, starts, pairs, n[3], n[4], marks, n[5], n[6], table)
        return
    members = windows.reshape((len(windows) // n[9], n[9]))
    pooling, target = (n[8], members, n[7], n[10]), (n[3], n[4], marks, n[5], n[6], table)
    # words as wide as a pixel's channels fill: fewer of them to count
    if n[8] == 4:
        list_pooled(array_of(board, 0, uint64), first, last, n[1], n[2], *pooling, entries, starts, pairs, *target)
    elif n[8] == 2:
        list_pooled(array_of(board, 0, uint32), first, last, n[1], n[2], *pooling, entries, starts, pairs, *target)
    else:
        list_pooled(array_of(board, 0, uint16), first, last, n[1], n[2], *pooling, entries, starts, pairs, *target)


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
