"""Listed spikes to currents: each adds its rows of weights to the currents it reaches.

Plain loops over flat arrays; `vector_add.py` holds the inner instructions. Numbers that index are unsigned: there is no
wrap-around to check.
"""
# What numba makes of types and of intrinsics (whose first argument it supplies itself) is not what mypy reads:
# mypy: disable-error-code="call-arg, return-value, assignment, arg-type, var-annotated"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import uintp

from ratenorm.engines.event.arrays import Array
from ratenorm.engines.event.compiled import compiled
from ratenorm.engines.event.lanes import WIDE
from ratenorm.engines.event.vector_add import (
    add_row,
    many_1x1,
    many_2x2,
    many_2x3,
    many_3x2,
    many_3x3,
    one_1x1,
    one_3x3,
)
from ratenorm.engines.event.vector_fire import settle_row
from ratenorm.engines.event.vector_short import (
    points_1,
    points_2,
    points_4,
    short_2x2,
    short_2x3,
    short_3x2,
    short_3x3,
    short_row,
)

ZERO, ONE, LANES, LOW = uintp(0), uintp(1), uintp(16), uintp(0xFFFF)
RUN = uintp(16)  # a bit of `cut`, see tables._cut


class Scratch(NamedTuple):
    """Room for the currents of a block, and for those in whole numbers; for its counts of a chunk (up to 255 steps);
    where each pixel lies in all of them."""

    total: Array
    whole: Array
    recent: Array
    places: Array


class Feed(NamedTuple):
    """The lists of a chunk and the tables of a stage, side by side (see script.py and tables.py)."""

    entries: Array
    ranges: Array
    marks: Array
    mark_stride: int
    modes: Array  # by section: 1 where a pixel has many spikes, 2 where it has very many
    sections: Array
    factors: Array
    first: Array
    cut: Array
    segments: Array
    shares: Array
    weights: Array
    block_size: int
    short: Array  # 16-bit weights
    short_size: int
    short_used: int  # of a block, most of the time
    units: Array
    diagonal: Array
    skip: Array  # the spikes of a skip connection, words as of the population itself; empty where there is none
    skip_scale: Array
    fetch: bool  # whether to read a block's weights through before they are needed


@compiled
def scatter(scratch: Scratch, block: int, width: int, row: int, rows: int, feed: Feed, settle: bool) -> None:
    """Add to the currents what the spikes listed for a row bring to one block of channels.

    What was added in 16 bits is in `whole` then, in units of its own; `settle` brings it to `total`. Several `rows`,
    each to a plane of its own in `whole`, only where there is one section of 16-bit windows, pixel by pixel.
    """
    total, whole, count = scratch.total, scratch.whole, len(feed.sections)
    for k in range(count):
        section = feed.sections[k]
        begin, end = uintp(feed.ranges[row * count + k, 0]), uintp(feed.ranges[row * count + k, 1])
        size = feed.short_size if section[9] > 0 else feed.block_size
        weight0 = uintp(section[2]) + uintp(block) * uintp(size)
        if section[0] == 1:
            _own(total, block, width, begin, end, section, feed)
        elif section[0] == 4:
            mark0 = uintp(row) * uintp(feed.mark_stride) + uintp(section[6])
            _points(whole, begin, section, weight0, mark0, feed)
        elif section[0] == 0:
            _rows(total, width, begin, end, section, weight0, feed)
        elif feed.modes[k] == 0:
            _one_by_one(total, whole, begin, end, section, weight0, feed)
        elif section[9] > 0:
            _pixel_by_pixel_short(scratch, row, rows, k, weight0, feed)
        else:
            mark0 = uintp(row) * uintp(feed.mark_stride) + uintp(section[6])
            _pixel_by_pixel(total, begin, section, weight0, mark0, feed)
        if settle and section[9] > 0:
            unit0 = uintp(section[10]) + uintp(block) * uintp(WIDE)
            for p in range(uintp(len(scratch.places))):
                settle_row(total, whole, uintp(scratch.places[p]), feed.units, unit0)


@compiled
def _one_by_one(
    total: Array, whole: Array, begin: uintp, end: uintp, section: Array, weight0: uintp, feed: Feed
) -> None:
    """Additions of one shape, spike by spike."""
    pixel0, stride, shift, factor0 = uintp(section[1]), uintp(section[4]), uintp(section[7]), uintp(section[8])
    entries, first, weights, factors = feed.entries, feed.first, feed.weights, feed.factors
    if section[9] > 0:
        short, size = feed.short, uintp(section[3]) * uintp(WIDE)
        for e in range(begin, end):
            at = uintp(first[pixel0 + (uintp(entries[e]) >> LANES)])
            short_3x3(whole, short, weight0, size, entries, e, e + ONE, ONE, at, stride)
    elif section[0] == 2:
        for e in range(begin, end):
            place = uintp(first[pixel0 + (uintp(entries[e]) >> LANES)])
            one_3x3(total, place, stride, weights, weight0, shift, factors, factor0, entries[e])
    else:
        for e in range(begin, end):
            place = uintp(first[pixel0 + (uintp(entries[e]) >> LANES)])
            one_1x1(total, place, stride, weights, weight0, shift, factors, factor0, entries[e])


@compiled
def _pixel_by_pixel(total: Array, begin: uintp, section: Array, weight0: uintp, mark0: uintp, feed: Feed) -> None:
    """Additions of one shape, all spikes of a pixel together; `marks` says where the list of each pixel ends."""
    pixel0, stride, shift, factor0 = uintp(section[1]), uintp(section[4]), uintp(section[7]), uintp(section[8])
    entries, first, weights, factors, marks = feed.entries, feed.first, feed.weights, feed.factors, feed.marks
    if section[0] == 2:
        for p in range(uintp(section[5])):
            end = uintp(marks[mark0 + p])
            if end != begin:
                place, cut = uintp(first[pixel0 + p]), uintp(feed.cut[pixel0 + p])
                if cut & uintp(3) == ZERO:
                    many_3x3(total, place, stride, weights, weight0, shift, factors, factor0, entries, begin, end)
                else:
                    down, right = (cut >> uintp(2)) & ONE, cut >> uintp(3)  # of the first row and column inside
                    place += down * stride + right * uintp(32)
                    row = weight0 + down * uintp(96) + right * uintp(32)
                    if cut & uintp(3) == uintp(3):
                        many_2x2(total, place, stride, weights, row, shift, factors, factor0, entries, begin, end)
                    elif cut & ONE:
                        many_2x3(total, place, stride, weights, row, shift, factors, factor0, entries, begin, end)
                    else:
                        many_3x2(total, place, stride, weights, row, shift, factors, factor0, entries, begin, end)
            begin = end
    else:
        for p in range(uintp(section[5])):
            end = uintp(marks[mark0 + p])
            if end != begin:
                place = uintp(first[pixel0 + p])
                many_1x1(total, place, stride, weights, weight0, shift, factors, factor0, entries, begin, end)
            begin = end


@compiled
def _pixel_by_pixel_short(scratch: Scratch, row: int, rows: int, k: int, weight0: uintp, feed: Feed) -> None:
    """The same with 16-bit weights: where there are many spikes, the inner pixels of a line together; or several steps
    together, whose spikes at a pixel are mostly those of the same neurons, so that their weights are at hand."""
    section, count = feed.sections[k], len(feed.sections)
    pixel0, stride, most = uintp(section[1]), uintp(section[4]), uintp(section[9])
    whole, plane = scratch.whole, uintp(len(scratch.total))
    entries, first, short, marks = feed.entries, feed.first, feed.short, feed.marks
    size = uintp(section[3]) * uintp(WIDE)
    run = uintp(section[12]) if feed.modes[k] == 2 and rows == 1 else ZERO
    mark0 = uintp(row) * uintp(feed.mark_stride) + uintp(section[6])
    p = ZERO
    while p < uintp(section[5]):
        cut = uintp(feed.cut[pixel0 + p])
        down, right = (cut >> uintp(2)) & ONE, (cut >> uintp(3)) & ONE  # of the first row and column inside
        at = uintp(first[pixel0 + p]) + down * stride + right * uintp(WIDE)
        weight = weight0 + (uintp(3) * down + right) * uintp(WIDE)
        mark = mark0 + p
        for r in range(rows):
            begin = uintp(marks[mark - ONE]) if p > ZERO else uintp(feed.ranges[(row + r) * count + k, 0])
            if run > ZERO and cut & RUN:
                short_row(whole, short, weight0, size, entries, begin, marks, mark, run, most, at, stride)
                p += run - ONE
                break
            end = uintp(marks[mark])
            if end != begin:
                if cut & uintp(3) == ZERO:
                    short_3x3(whole, short, weight, size, entries, begin, end, most, at, stride)
                elif cut & uintp(3) == uintp(3):
                    short_2x2(whole, short, weight, size, entries, begin, end, most, at, stride)
                elif cut & ONE:
                    short_2x3(whole, short, weight, size, entries, begin, end, most, at, stride)
                else:
                    short_3x2(whole, short, weight, size, entries, begin, end, most, at, stride)
            at += plane
            mark += uintp(feed.mark_stride)
        p += ONE


@compiled
def _points(whole: Array, begin: uintp, section: Array, weight0: uintp, mark0: uintp, feed: Feed) -> None:
    """Additions of any shape with 16-bit weights, all spikes of a pixel together, to four target pixels at a time."""
    pixel0, most = uintp(section[1]), uintp(section[9])
    entries, first, short, marks, table = feed.entries, feed.first, feed.short, feed.marks, feed.segments
    size = uintp(section[3]) * uintp(WIDE)
    for p in range(uintp(section[5])):
        end = uintp(marks[mark0 + p])
        if end != begin:
            g, last = uintp(first[pixel0 + p]), uintp(first[pixel0 + p + ONE])
            while g + uintp(4) <= last:
                points_4(whole, short, weight0, size, entries, begin, end, most, table, g)
                g += uintp(4)
            if g + uintp(2) <= last:
                points_2(whole, short, weight0, size, entries, begin, end, most, table, g)
                g += uintp(2)
            if g < last:
                points_1(whole, short, weight0, size, entries, begin, end, most, table, g)
        begin = end


@compiled
def _rows(total: Array, width: int, begin: uintp, end: uintp, section: Array, weight0: uintp, feed: Feed) -> None:
    """Additions of any shape: every spike reaches every channel, along the segments of its pixel."""
    pixel0, row_size = uintp(section[1]), uintp(section[3]) * uintp(width)
    shift, factor0 = uintp(section[7]), uintp(section[8])
    first, segments = feed.first, feed.segments
    for e in range(begin, end):
        entry = uintp(feed.entries[e])
        place = pixel0 + (entry >> LANES)
        digit = (entry & LOW) >> shift
        row0 = weight0 + ((entry & LOW) - (digit << shift)) * row_size
        for g in range(uintp(first[place]), uintp(first[place + ONE])):
            factor = feed.factors[factor0 + digit] * feed.shares[g]
            row = row0 + uintp(segments[g, 1])
            add_row(total, uintp(segments[g, 0]), feed.weights, row, uintp(segments[g, 2]), factor)


@compiled
def _own(total: Array, block: int, width: int, begin: uintp, end: uintp, section: Array, feed: Feed) -> None:
    """Additions where every spike reaches its own channel only."""
    pixel0, weight0, taps, lanes = uintp(section[1]), uintp(section[2]), uintp(section[3]), uintp(width)
    channel0, shift, factor0 = uintp(block * width), uintp(section[7]), uintp(section[8])
    first, segments = feed.first, feed.segments
    for e in range(begin, end):
        entry = uintp(feed.entries[e])
        digit = (entry & LOW) >> shift
        channel = (entry & LOW) - (digit << shift)
        if channel < channel0 or channel >= channel0 + lanes:
            continue
        place = pixel0 + (entry >> LANES)
        row0 = weight0 + channel * taps
        for g in range(uintp(first[place]), uintp(first[place + ONE])):
            into = uintp(segments[g, 0]) + channel - channel0
            weight = row0 + uintp(segments[g, 1]) // lanes
            factor = feed.factors[factor0 + digit] * feed.shares[g]
            for j in range(uintp(segments[g, 2]) // lanes):
                total[into + j * lanes] += np.float32(factor * feed.diagonal[weight + j])
