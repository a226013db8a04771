"""Words of spikes to lists of spikes, plain or pooled."""
# mypy: disable-error-code="call-arg, return-value, assignment, arg-type, var-annotated"

from __future__ import annotations

import numpy as np
from numpy import uintp

from ratenorm.engines.event.arrays import Array
from ratenorm.engines.event.compiled import compiled
from ratenorm.engines.event.scatter import LANES, ONE, ZERO
from ratenorm.engines.event.vector_bits import list_word


@compiled
def _begin(first: int, by_row: Array, row: int) -> uintp:
    """Where the list of a row begins."""
    begin = uintp(first)
    for r in range(row):
        begin += uintp(by_row[r]) + LANES
    return begin


@compiled
def list_spikes(
    spikes: Array,
    row0: int,
    row1: int,
    pixels: int,
    words: int,
    entries: Array,
    by_row: Array,
    first: int,
    ranges: Array,
    section: int,
    sections: int,
    marks: Array,
    mark: int,
    mark_stride: int,
    table: Array,
) -> None:
    """List the spikes of some rows as pixel << 16 | channel; row by row from entry `first` on.

    A row has room for its spikes and for sixteen more: so many are written at a time.
    """
    begin = _begin(first, by_row, row0)
    for row in range(row0, row1):
        place = begin
        begin += uintp(by_row[row]) + LANES
        ranges[row * sections + section, 0] = place
        word0, mark0 = uintp(row * pixels * words), uintp(row) * uintp(mark_stride) + uintp(mark)
        for p in range(uintp(pixels)):
            for w in range(uintp(words)):
                word = uintp(spikes[word0 + p * uintp(words) + w])
                place += list_word(entries, place, table, word, np.uint32((p << LANES) + (w << uintp(4))))
            marks[mark0 + p] = place
        ranges[row * sections + section, 1] = place


@compiled
def list_pooled(
    spikes: Array,
    row0: int,
    row1: int,
    pixels: int,
    words: int,
    per: int,
    windows: Array,
    apart: int,
    count: int,
    entries: Array,
    by_row: Array,
    first: int,
    ranges: Array,
    section: int,
    sections: int,
    marks: Array,
    mark: int,
    mark_stride: int,
    table: Array,
) -> None:
    """The same for spikes pooled over disjoint windows [window, member], as window << 16 | digit * apart + channel.

    How many neurons of a window spike is counted for all channels of a word at once, in binary, one word for each
    digit (`count` of them); a channel is listed once for each digit of its number, and digit d weighs 2^d. `spikes` may
    have words of 16, 32 or 64 bits: `words` of them a pixel, `per` of 16 bits in each.
    """
    begin = _begin(first, by_row, row0)
    digits = np.zeros(count, np.uint64)
    four = windows.shape[1] == 4
    for row in range(row0, row1):
        place = begin
        begin += uintp(by_row[row]) + LANES
        ranges[row * sections + section, 0] = place
        word0, mark0 = uintp(row * pixels * words), uintp(row) * uintp(mark_stride) + uintp(mark)
        for q in range(uintp(len(windows))):
            for w in range(uintp(words)):
                start = (q << LANES) + w * uintp(per) * LANES
                if four:
                    a = uintp(spikes[word0 + uintp(windows[q, 0]) * uintp(words) + w])
                    b = uintp(spikes[word0 + uintp(windows[q, 1]) * uintp(words) + w])
                    c = uintp(spikes[word0 + uintp(windows[q, 2]) * uintp(words) + w])
                    d = uintp(spikes[word0 + uintp(windows[q, 3]) * uintp(words) + w])
                    place = _list_wide(entries, place, table, a ^ b ^ c ^ d, uintp(per), start)
                    start += uintp(apart)
                    two = (a & b) ^ (c & d) ^ ((a ^ b) & (c ^ d))
                    place = _list_wide(entries, place, table, two, uintp(per), start)
                    if a & b & c & d != ZERO:
                        start += uintp(apart)
                        place = _list_wide(entries, place, table, a & b & c & d, uintp(per), start)
                    continue
                _count_any(spikes, word0 + w, uintp(words), windows, q, digits)
                for d in range(uintp(len(digits))):
                    place = _list_wide(entries, place, table, uintp(digits[d]), uintp(per), start + d * uintp(apart))
            marks[mark0 + q] = place
        ranges[row * sections + section, 1] = place


@compiled
def _list_wide(entries: Array, place: uintp, table: Array, wide: uintp, per: uintp, start: uintp) -> uintp:
    """List the bits of a word of `per` times 16 bits."""
    for part in range(per):
        word = (wide >> (part << uintp(4))) & uintp(0xFFFF)
        place += list_word(entries, place, table, word, np.uint32(start + part * LANES))
    return place


@compiled
def _count_any(spikes: Array, word: uintp, words: uintp, windows: Array, q: uintp, digits: Array) -> None:
    for d in range(uintp(len(digits))):
        digits[d] = 0
    for m in range(uintp(windows.shape[1])):
        carry = np.uint64(spikes[word + uintp(windows[q, m]) * words])
        d = ZERO
        while carry != 0:
            both = digits[d] & carry
            digits[d] ^= carry
            carry = both
            d += ONE
