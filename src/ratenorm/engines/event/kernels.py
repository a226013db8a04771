"""The work of the event engine. Plain loops over flat arrays; `vector.py` holds the inner instructions.

Spikes are words of 16 bits, [row, pixel, word] with row = image * steps + step. A population's state is laid out
[image, block, pixel, lane]: channels are cut into blocks of `width` lanes so that a block's weights stay in the
second-level cache while all images and steps pass over them. Numbers that index are unsigned: no wrap-around to check.
"""
# What numba makes of types and of intrinsics (whose first argument it supplies itself) is not what mypy reads:
# mypy: disable-error-code="call-arg, return-value, assignment, var-annotated"

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import uintp

from ratenorm.engines.event.compiled import compiled
from ratenorm.engines.event.vector import (
    add_row,
    fire_constant_1,
    fire_constant_2,
    fire_constant_4,
    fire_lanes,
    list_word,
    many_1x1,
    many_3x3,
    one_1x1,
    one_3x3,
    ones,
    spikes_against,
)

Array = np.ndarray[Any, Any]

ZERO, ONE, LANES = uintp(0), uintp(1), uintp(16)


@compiled
def fire_still(
    current: Array,
    potential: Array,
    counts: Array,
    threshold: Array,
    threshold_block: int,
    threshold_pixel: int,
    spikes: Array,
    images: int,
    blocks: int,
    pixels: int,
    width: int,
    steps: int,
) -> None:
    """A population whose current does not change: all steps at once, [image, block, pixel, lane] in `current`."""
    size, lanes = uintp(pixels * width), uintp(width)
    words = uintp(blocks * width // 16)
    stride = uintp(pixels) * words
    fours = size // uintp(64) * uintp(64) if blocks == 1 and threshold_pixel == 0 else ZERO
    for b in range(uintp(images)):
        for k in range(uintp(blocks)):
            state = (b * uintp(blocks) + k) * size
            at = ZERO
            while at < size:
                pixel = at // lanes
                lane = at - pixel * lanes
                word = b * uintp(steps) * stride + pixel * words + (k * lanes + lane) // LANES
                theta = k * uintp(threshold_block) + lane + pixel * uintp(threshold_pixel)
                if at < fours:
                    fire_constant_4(
                        potential,
                        counts,
                        state + at,
                        current,
                        state + at,
                        threshold,
                        theta,
                        spikes,
                        word,
                        stride,
                        uintp(steps),
                    )
                    at += uintp(64)
                elif lanes == uintp(32):
                    fire_constant_2(
                        potential,
                        counts,
                        state + at,
                        current,
                        state + at,
                        threshold,
                        theta,
                        spikes,
                        word,
                        stride,
                        uintp(steps),
                    )
                    at += uintp(32)
                else:
                    fire_constant_1(
                        potential,
                        counts,
                        state + at,
                        current,
                        state + at,
                        threshold,
                        theta,
                        spikes,
                        word,
                        stride,
                        uintp(steps),
                    )
                    at += LANES


@compiled
def scatter(
    total: Array,
    block: int,
    width: int,
    row: int,
    entries: Array,
    ranges: Array,
    marks: Array,
    mark_stride: int,
    sections: Array,
    factors: Array,
    first: Array,
    segments: Array,
    shares: Array,
    weights: Array,
    block_size: int,
    diagonal: Array,
) -> None:
    """Add to `total` what the spikes listed for one row bring to one block of channels. Sections: see tables.py."""
    count = len(sections)
    for k in range(count):
        kind = sections[k, 0]
        begin, end = uintp(ranges[row * count + k, 0]), uintp(ranges[row * count + k, 1])
        if kind == 1:
            _scatter_own(
                total, block, width, entries, begin, end, sections[k], factors, first, segments, shares, diagonal
            )
            continue
        weight0 = uintp(sections[k, 2]) + uintp(block) * uintp(block_size)
        if kind == 0:
            _scatter_rows(
                total, width, entries, begin, end, sections[k], weight0, factors, first, segments, shares, weights
            )
        elif sections[k, 6] == 0:
            _scatter_one(total, entries, begin, end, sections[k], weight0, factors, first, weights)
        else:
            _scatter_many(
                total,
                entries,
                begin,
                sections[k],
                weight0,
                factors,
                first,
                weights,
                marks,
                uintp(row) * uintp(mark_stride) + uintp(sections[k, 7]),
            )


@compiled
def _scatter_one(
    total: Array,
    entries: Array,
    begin: uintp,
    end: uintp,
    section: Array,
    weight0: uintp,
    factors: Array,
    first: Array,
    weights: Array,
) -> None:
    """Additions of one shape, spike by spike."""
    pixel0, stride, shift, factor0 = uintp(section[1]), uintp(section[4]), uintp(section[8]), uintp(section[9])
    if section[0] == 2:
        for e in range(begin, end):
            place = uintp(first[pixel0 + (uintp(entries[e]) >> LANES)])
            one_3x3(total, place, stride, weights, weight0, shift, factors, factor0, entries[e])
    else:
        for e in range(begin, end):
            place = uintp(first[pixel0 + (uintp(entries[e]) >> LANES)])
            one_1x1(total, place, stride, weights, weight0, shift, factors, factor0, entries[e])


@compiled
def _scatter_many(
    total: Array,
    entries: Array,
    begin: uintp,
    section: Array,
    weight0: uintp,
    factors: Array,
    first: Array,
    weights: Array,
    marks: Array,
    mark0: uintp,
) -> None:
    """Additions of one shape, pixel by pixel; `marks` says where the list of each pixel ends."""
    pixel0, stride, shift, factor0 = uintp(section[1]), uintp(section[4]), uintp(section[8]), uintp(section[9])
    if section[0] == 2:
        for p in range(uintp(section[5])):
            end = uintp(marks[mark0 + p])
            if end != begin:
                many_3x3(
                    total,
                    uintp(first[pixel0 + p]),
                    stride,
                    weights,
                    weight0,
                    shift,
                    factors,
                    factor0,
                    entries,
                    begin,
                    end,
                )
            begin = end
    else:
        for p in range(uintp(section[5])):
            end = uintp(marks[mark0 + p])
            if end != begin:
                many_1x1(
                    total,
                    uintp(first[pixel0 + p]),
                    stride,
                    weights,
                    weight0,
                    shift,
                    factors,
                    factor0,
                    entries,
                    begin,
                    end,
                )
            begin = end


@compiled
def _scatter_rows(
    total: Array,
    width: int,
    entries: Array,
    begin: uintp,
    end: uintp,
    section: Array,
    weight0: uintp,
    factors: Array,
    first: Array,
    segments: Array,
    shares: Array,
    weights: Array,
) -> None:
    """Additions of any shape: every spike reaches every channel, along the segments of its pixel."""
    pixel0, row_size = uintp(section[1]), uintp(section[3]) * uintp(width)
    shift, factor0 = uintp(section[8]), uintp(section[9])
    for e in range(begin, end):
        entry = uintp(entries[e])
        place = pixel0 + (entry >> LANES)
        digit = (entry & uintp(0xFFFF)) >> shift
        row0 = weight0 + ((entry & uintp(0xFFFF)) - (digit << shift)) * row_size
        for g in range(uintp(first[place]), uintp(first[place + ONE])):
            add_row(
                total,
                uintp(segments[g, 0]),
                weights,
                row0 + uintp(segments[g, 1]),
                uintp(segments[g, 2]),
                factors[factor0 + digit] * shares[g],
            )


@compiled
def _scatter_own(
    total: Array,
    block: int,
    width: int,
    entries: Array,
    begin: uintp,
    end: uintp,
    section: Array,
    factors: Array,
    first: Array,
    segments: Array,
    shares: Array,
    diagonal: Array,
) -> None:
    """Additions where every spike reaches its own channel only."""
    pixel0, weight0, taps, lanes = uintp(section[1]), uintp(section[2]), uintp(section[3]), uintp(width)
    channel0, shift, factor0 = uintp(block * width), uintp(section[8]), uintp(section[9])
    for e in range(begin, end):
        entry = uintp(entries[e])
        digit = (entry & uintp(0xFFFF)) >> shift
        channel = (entry & uintp(0xFFFF)) - (digit << shift)
        if channel < channel0 or channel >= channel0 + lanes:
            continue
        place = pixel0 + (entry >> LANES)
        row0 = weight0 + channel * taps
        for g in range(uintp(first[place]), uintp(first[place + ONE])):
            into = uintp(segments[g, 0]) + channel - channel0
            weight = row0 + uintp(segments[g, 1]) // lanes
            for j in range(uintp(segments[g, 2]) // lanes):
                total[into + j * lanes] += factors[factor0 + digit] * shares[g] * diagonal[weight + j]


@compiled
def fire_listed(
    images: int,
    blocks: int,
    block0: int,
    block1: int,
    pixels: int,
    width: int,
    steps: int,
    total: Array,
    recent: Array,
    places: Array,
    extra: Array,
    base: Array,
    base_image: int,
    base_block: int,
    base_pixel: int,
    potential: Array,
    counts: Array,
    threshold: Array,
    threshold_block: int,
    threshold_pixel: int,
    spikes: Array,
    entries: Array,
    ranges: Array,
    marks: Array,
    mark_stride: int,
    sections: Array,
    factors: Array,
    first: Array,
    segments: Array,
    shares: Array,
    weights: Array,
    block_size: int,
    diagonal: Array,
) -> None:
    """A population driven by listed spikes, by currents computed elsewhere (`extra`, may be empty), and by `base`."""
    lanes = uintp(width)
    groups = lanes // LANES
    words = uintp(blocks) * groups
    size = uintp(pixels) * lanes
    for block in range(block0, block1):
        for image in range(images):
            state = (uintp(image) * uintp(blocks) + uintp(block)) * size
            base0 = uintp(image) * uintp(base_image) + uintp(block) * uintp(base_block)
            theta0 = uintp(block) * uintp(threshold_block)
            for step in range(steps):
                row = image * steps + step
                scatter(
                    total,
                    block,
                    width,
                    row,
                    entries,
                    ranges,
                    marks,
                    mark_stride,
                    sections,
                    factors,
                    first,
                    segments,
                    shares,
                    weights,
                    block_size,
                    diagonal,
                )
                if len(extra) > 0:
                    _add_extra(
                        total, places, extra, uintp(row) * uintp(pixels), block, uintp(pixels), lanes, words * LANES
                    )
                word0 = uintp(row) * uintp(pixels) * words + uintp(block) * groups
                for p in range(uintp(pixels)):
                    for g in range(groups):
                        lane = g * LANES
                        spikes[word0 + p * words + g] = fire_lanes(
                            potential,
                            recent,
                            state + p * lanes + lane,
                            total,
                            uintp(places[p]) + lane,
                            base,
                            base0 + p * uintp(base_pixel) + lane,
                            threshold,
                            theta0 + p * uintp(threshold_pixel) + lane,
                        )
            for p in range(uintp(pixels)):
                for lane in range(lanes):
                    counts[state + p * lanes + lane] += np.float32(recent[uintp(places[p]) + lane])
                    recent[uintp(places[p]) + lane] = 0


@compiled
def _add_extra(
    total: Array, places: Array, extra: Array, pixel0: uintp, block: int, pixels: uintp, lanes: uintp, channels: uintp
) -> None:
    for p in range(pixels):
        source = (pixel0 + p) * channels + uintp(block) * lanes
        add_row(total, uintp(places[p]), extra, source, lanes, np.float32(1.0))


@compiled
def gather_currents(
    images: int,
    blocks: int,
    pixels: int,
    width: int,
    steps: int,
    total: Array,
    places: Array,
    out: Array,
    entries: Array,
    ranges: Array,
    marks: Array,
    mark_stride: int,
    sections: Array,
    factors: Array,
    first: Array,
    segments: Array,
    shares: Array,
    weights: Array,
    block_size: int,
    diagonal: Array,
) -> None:
    """The currents themselves, [row, block, pixel, lane]: for the output, which does not spike."""
    size = uintp(pixels * width)
    for block in range(blocks):
        for row in range(images * steps):
            scatter(
                total,
                block,
                width,
                row,
                entries,
                ranges,
                marks,
                mark_stride,
                sections,
                factors,
                first,
                segments,
                shares,
                weights,
                block_size,
                diagonal,
            )
            out0 = uintp(row * blocks + block) * size
            for p in range(uintp(pixels)):
                for j in range(uintp(width)):
                    out[out0 + p * uintp(width) + j] = total[uintp(places[p]) + j]
                    total[uintp(places[p]) + j] = np.float32(0.0)


@compiled
def list_spikes(
    spikes: Array,
    row0: int,
    rows: int,
    pixels: int,
    words: int,
    entries: Array,
    at: int,
    ranges: Array,
    section: int,
    sections: int,
    marks: Array,
    mark: int,
    mark_stride: int,
    table: Array,
) -> tuple[int, int]:
    """List the spikes of each row as pixel << 16 | channel. Stops early where `entries` may not suffice.

    Returns the first row not done and the place behind the last entry.
    """
    place = uintp(at)
    most = uintp(pixels * words * 16 + 16)
    for row in range(row0, rows):
        if place + most > uintp(len(entries)):
            return row, place
        ranges[row * sections + section, 0] = place
        word0, mark0 = uintp(row * pixels * words), uintp(row) * uintp(mark_stride) + uintp(mark)
        for p in range(uintp(pixels)):
            for w in range(uintp(words)):
                word = uintp(spikes[word0 + p * uintp(words) + w])
                place += list_word(entries, place, table, word, np.uint32((p << LANES) + (w << uintp(4))))
            marks[mark0 + p] = place
        ranges[row * sections + section, 1] = place
    return rows, place


@compiled
def list_pooled(
    spikes: Array,
    row0: int,
    rows: int,
    pixels: int,
    words: int,
    per: int,
    windows: Array,
    shift: int,
    digits: Array,
    entries: Array,
    at: int,
    ranges: Array,
    section: int,
    sections: int,
    marks: Array,
    mark: int,
    mark_stride: int,
    table: Array,
) -> tuple[int, int]:
    """The same for spikes pooled over disjoint windows [window, member], as window << 16 | digit << shift | channel.

    How many neurons of a window spike is counted for all channels of a word at once, in binary, one word for each
    digit; a channel is listed once for each digit of its count, and digit d weighs 2^d. `spikes` may have words of 16,
    32 or 64 bits: `words` of them a pixel, `per` of 16 bits in each. `digits` is scratch of the same type.
    """
    place = uintp(at)
    most = uintp(len(digits) * len(windows) * words * per * 16 + 16)
    four = windows.shape[1] == 4
    for row in range(row0, rows):
        if place + most > uintp(len(entries)):
            return row, place
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
                    start += ONE << uintp(shift)
                    two = (a & b) ^ (c & d) ^ ((a ^ b) & (c ^ d))
                    place = _list_wide(entries, place, table, two, uintp(per), start)
                    if a & b & c & d != ZERO:
                        start += ONE << uintp(shift)
                        place = _list_wide(entries, place, table, a & b & c & d, uintp(per), start)
                    continue
                _count_any(spikes, word0 + w, uintp(words), windows, q, digits)
                for d in range(uintp(len(digits))):
                    place = _list_wide(entries, place, table, uintp(digits[d]), uintp(per), start + (d << uintp(shift)))
            marks[mark0 + q] = place
        ranges[row * sections + section, 1] = place
    return rows, place


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
        carry = spikes[word + uintp(windows[q, m]) * words]
        d = ZERO
        while carry != 0:
            both = digits[d] & carry
            digits[d] ^= carry
            carry = both
            d += ONE


@compiled
def tally(spikes: Array, rows: int, steps: int, words: int, fan_out: Array, counted: Array, operations: Array) -> None:
    """Spikes and synaptic operations of each step; `fan_out` has one entry a word of 16 channels."""
    for row in range(rows):
        base = uintp(row) * uintp(words)
        number, paths = 0, 0
        for w in range(uintp(words)):
            n = ones(np.uint64(spikes[base + w]))
            number += n
            paths += n * fan_out[w]
        counted[row % steps] += number
        operations[row % steps] += paths


@compiled
def tally_each(
    spikes: Array, rows: int, steps: int, words: int, fan_out: Array, counted: Array, operations: Array
) -> None:
    """The same where the fan-out differs between channels: one entry a neuron."""
    for row in range(rows):
        base = uintp(row) * uintp(words)
        for w in range(uintp(words)):
            word = uintp(spikes[base + w])
            bit = ZERO
            while word != ZERO:
                if word & ONE:
                    counted[row % steps] += 1
                    operations[row % steps] += fan_out[w * LANES + bit]
                word >>= ONE
                bit += ONE


@compiled
def unpack(spikes: Array, pixels: int, words: int, channels: int, out: Array) -> None:
    """Words of spikes as floats, [row, pixel, channel]."""
    count = uintp(channels)
    for place in range(uintp(len(out)) // count):
        word0 = place * uintp(words)
        for c in range(count):
            word = uintp(spikes[word0 + (c >> uintp(4))])
            out[place * count + c] = np.float32((word >> (c & uintp(15))) & ONE)


@compiled
def pack(values: Array, pixels: int, words: int, channels: int, spikes: Array) -> None:
    """Floats, 0 or not 0, [row, pixel, channel], as words of spikes."""
    count = uintp(channels)
    for place in range(uintp(len(values)) // count):
        for w in range(uintp(words)):
            word = ZERO
            for bit in range(LANES):
                c = w * LANES + bit
                if c < count and values[place * count + c] != np.float32(0.0):
                    word |= ONE << bit
            spikes[place * uintp(words) + w] = word
    del pixels


@compiled
def measure_fit(
    spikes: Array, images: int, steps: int, neurons: int, counts: Array, target: Array, sums: Array
) -> None:
    """sums[step] += (earlier counts of the neurons that spike, their targets); `counts` [image, neuron] go on."""
    words = uintp(neurons) // LANES
    for image in range(uintp(images)):
        for step in range(uintp(steps)):
            word0 = (image * uintp(steps) + step) * words
            spikes_against(spikes, word0, words, counts, target, image * uintp(neurons), sums[step])


@compiled
def note_first(spikes: Array, images: int, steps: int, neurons: int, first_step: int, first: Array) -> None:
    """The step (from 1) of each neuron's first spike, where it has not fired before."""
    for image in range(images):
        for step in range(steps):
            word0 = uintp((image * steps + step) * (neurons // 16))
            for w in range(uintp(neurons // 16)):
                word = uintp(spikes[word0 + w])
                bit = ZERO
                while word != ZERO:
                    place = uintp(image) * uintp(neurons) + w * LANES + bit
                    if word & ONE and first[place] == 0:
                        first[place] = first_step + step + 1
                    word >>= ONE
                    bit += ONE
