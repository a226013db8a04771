"""The jobs that threads share: read from the board, cut into parts, done.

A helper that had to ask Python for its arguments would wait for the interpreter's lock, and one that sleeps takes as
long to wake as a small layer takes to run. So a helper runs one compiled function all along: it waits, awake, until the
turn changes, does its part of the job on the board, and says so.
"""
# mypy: disable-error-code="call-arg, return-value, assignment, arg-type, var-annotated"

from __future__ import annotations

from numpy import float32, int16, int32, int64, uint8, uint16, uint32, uint64, uintp

from ratenorm.engines.event.arrays import Array
from ratenorm.engines.event.board import LINE, acquire, array_of, call, fail, heading, read, release
from ratenorm.engines.event.compiled import compiled
from ratenorm.engines.event.fire import Base, Neurons, Sizes, fire_listed, fire_still, gather_currents
from ratenorm.engines.event.listing import list_pooled, list_spikes
from ratenorm.engines.event.measure import tally
from ratenorm.engines.event.scatter import ZERO, Feed, Scratch

REST = -1  # a turn that is no job: go back to Python and wait there
DONE = 1  # what a job returns: an exception in it cannot leave the thread, and nothing is returned then

# A job is given the address of its board and the number of its part. It is compiled when it is first needed.
# Numbers of jobs on neurons: images, steps, pixels, blocks, width; distances of thresholds (block, pixel) and of base
# (image, block, pixel); stride of marks, columns of sections, sizes of a block's weights (float32, 16 bits, 16 bits
# used), whether to fetch them, size of a part's scratch, for what a fan-out stands, steps together, whether all begins
# with zeros. Numbers of lists: rows, pixels, words, section, sections, mark, stride of marks, first entry; of pooled
# ones also the distance of digits, words of 16 bits in one, members of a window, digits.


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
    begin, end = part * n[16], (part + 1) * n[16]
    total, whole = array_of(a[8], float32)[begin:end], array_of(a[9], int32)[begin * n[18] : end * n[18]]
    return Scratch(total, whole, array_of(a[10], uint8)[begin:end], array_of(a[11], uint32))


@compiled
def _feed(n: Array, a: Array) -> Feed:
    ranges, sections, segments = array_of(a[13], uint64), array_of(a[16], int64), array_of(a[20], uint32)
    return Feed(
        array_of(a[12], uint32),
        ranges.reshape((len(ranges) // 2, 2)),
        array_of(a[14], uint32),
        n[10],
        array_of(a[15], int64),
        sections.reshape((len(sections) // n[11], n[11])),
        array_of(a[17], float32),
        array_of(a[18], uint32),
        array_of(a[19], uint8),
        segments.reshape((len(segments) // 3, 3)),
        array_of(a[21], float32),
        array_of(a[22], float32),
        n[12],
        array_of(a[23], int16),
        n[13],
        n[14],
        array_of(a[24], float32),
        array_of(a[25], float32),
        array_of(a[26], uint16),
        array_of(a[27], float32),
        n[15] != 0,
    )


@compiled
def _note(sizes: Sizes, block0: int, block1: int, n: Array, a: Array, part: int) -> None:
    """What the blocks of a part did goes to [part, (spikes, operations), row]."""
    rows = sizes.images * sizes.steps
    noted = array_of(a[5], int64)[2 * part * rows :]
    fan_out = array_of(a[4], int64)
    tally(array_of(a[3], uint16), sizes, block0, block1, fan_out, n[17], noted[:rows], noted[rows : 2 * rows])


@compiled
def still(board: int, part: int) -> int:
    """Arrays: potential, counts, threshold, spikes, fan-out, noted, base."""
    parts, n, a = read(board)
    sizes, first, last = _sizes(n, part, parts)
    fire_still(sizes, first, last, _neurons(n, a), Base(array_of(a[6], float32), n[7], n[8], n[9]), n[19] != 0)
    _note(sizes, first, last, n, a, part)
    return DONE


@compiled
def listed(board: int, part: int) -> int:
    """Arrays: potential, counts, threshold, spikes, fan-out, noted, base, extra, total, whole, recent, places, then
    those of a feed."""
    parts, n, a = read(board)
    sizes, first, last = _sizes(n, part, parts)
    base, extra = Base(array_of(a[6], float32), n[7], n[8], n[9]), array_of(a[7], float32)
    fire_listed(sizes, first, last, _neurons(n, a), base, extra, _scratch(n, a, part), _feed(n, a), n[18], n[19] != 0)
    _note(sizes, first, last, n, a, part)
    return DONE


@compiled
def currents(board: int, part: int) -> int:
    """Arrays: seven that are not read, out, total, whole, recent, places, then those of a feed."""
    parts, n, a = read(board)
    sizes, first, last = _sizes(n, part, parts)
    gather_currents(sizes, first, last, _scratch(n, a, part), _feed(n, a), array_of(a[7], float32))
    return DONE


@compiled
def plain_list(board: int, part: int) -> int:
    """Arrays: spikes, entries, spikes by row, ranges, marks, table."""
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


# Arrays: spikes in words as wide as a pixel's channels fill (fewer of them to count), entries, spikes by row, ranges,
# marks, table, windows.


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


@compiled
def do(address: int, part: int) -> None:
    """One part of the job on the board at an address, if there are that many."""
    code, parts = heading(address)
    if part < parts and call(code, address, part) != DONE:
        fail(address)


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
def take_part(board: int, flags: Array, part: int, turn: int, patience: int) -> bool:
    """What every thread of a crew runs.

    The first part announces the job on the board as this turn (0: it works alone), does its share and waits for the
    others; False as of `finished`. Any other part does its share of every job as it comes, until there was none for
    long; False where it is time to rest.
    """
    if part == 0:
        if turn > 0:
            release(flags, ZERO, turn)
        do(board, part)
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
        do(board, part)
        done, tries = now, 0
        release(flags, uintp(part * LINE), done)
    return True
