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
    fit_lanes,
    list_word,
    many_1x1,
    many_3x3,
    one_1x1,
    one_3x3,
    ones,
)

Array = np.ndarray[Any, Any]

ZERO, ONE, LANES = uintp(0), uintp(1), uintp(16)


@compiled
def fire_still(current: Array, potential: Array, counts: Array, threshold: Array, threshold_block: int,
               threshold_pixel: int, spikes: Array, images: int, blocks: int, pixels: int, width: int, steps: int) -> None:
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
                    fire_constant_4(potential, counts, state + at, current, state + at, threshold, theta,
                                    spikes, word, stride, uintp(steps))
                    at += uintp(64)
                elif lanes == uintp(32):
                    fire_constant_2(potential, counts, state + at, current, state + at, threshold, theta,
                                    spikes, word, stride, uintp(steps))
                    at += uintp(32)
                else:
                    fire_constant_1(potential, counts, state + at, current, state + at, threshold, theta,
                                    spikes, word, stride, uintp(steps))
                    at += LANES


@compiled
def scatter(total: Array, block: int, width: int, row: int, entries: Array, ranges: Array, marks: Array,
            sections: Array, factors: Array, first: Array, segments: Array, shares: Array, weights: Array,
            block_size: int, diagonal: Array, mark_stride: int) -> None:
    """Add to `total` what the spikes listed for one row bring to one block of channels.

    `sections` [K, 8]: kind, first pixel, first weight, taps, stride, pixels, whether many spike, first mark (plan.py).
    """
    count = len(sections)
    mark0 = uintp(row) * uintp(mark_stride)
    for k in range(count):
        kind = sections[k, 0]
        begin, end = uintp(ranges[row * count + k, 0]), uintp(ranges[row * count + k, 1])
        if kind == 1:
            _scatter_own(total, block, width, entries, begin, end, sections[k], factors[k], first, segments, shares,
                         diagonal)
            continue
        weight0 = uintp(sections[k, 2]) + uintp(block) * uintp(block_size)
        if kind == 0:
            _scatter_rows(total, width, entries, begin, end, sections[k], weight0, factors[k], first, segments, shares,
                          weights)
        elif sections[k, 6] == 0:
            _scatter_one(total, entries, begin, end, sections[k], weight0, factors[k], first, weights)
        else:
            _scatter_many(total, entries, begin, sections[k], weight0, factors[k], first, weights, marks,
                          mark0 + uintp(sections[k, 7]))


@compiled
def _scatter_one(total: Array, entries: Array, begin: uintp, end: uintp, section: Array, weight0: uintp, factor: float,
                 first: Array, weights: Array) -> None:
    """Additions of one shape, spike by spike."""
    pixel0, stride = uintp(section[1]), uintp(section[4])
    if section[0] == 2:
        for e in range(begin, end):
            entry = entries[e]
            one_3x3(total, uintp(first[pixel0 + (uintp(entry) >> LANES)]), stride, weights, weight0, entry, factor)
    else:
        for e in range(begin, end):
            entry = entries[e]
            one_1x1(total, uintp(first[pixel0 + (uintp(entry) >> LANES)]), stride, weights, weight0, entry, factor)


@compiled
def _scatter_many(total: Array, entries: Array, begin: uintp, section: Array, weight0: uintp, factor: float,
                  first: Array, weights: Array, marks: Array, mark0: uintp) -> None:
    """Additions of one shape, pixel by pixel; `marks` says where the list of each pixel ends."""
    pixel0, stride, pixels = uintp(section[1]), uintp(section[4]), uintp(section[5])
    if section[0] == 2:
        for p in range(pixels):
            end = uintp(marks[mark0 + p])
            if end != begin:
                many_3x3(total, uintp(first[pixel0 + p]), stride, weights, weight0, entries, begin, end, factor)
            begin = end
    else:
        for p in range(pixels):
            end = uintp(marks[mark0 + p])
            if end != begin:
                many_1x1(total, uintp(first[pixel0 + p]), stride, weights, weight0, entries, begin, end, factor)
            begin = end


@compiled
def _scatter_rows(total: Array, width: int, entries: Array, begin: uintp, end: uintp, section: Array, weight0: uintp,
                  factor: float, first: Array, segments: Array, shares: Array, weights: Array) -> None:
    """Additions of any shape: every spike reaches every channel, along the segments of its pixel."""
    pixel0, row_size = uintp(section[1]), uintp(section[3]) * uintp(width)
    for e in range(begin, end):
        entry = uintp(entries[e])
        place = pixel0 + (entry >> LANES)
        row0 = weight0 + (entry & uintp(0xFFFF)) * row_size
        for g in range(uintp(first[place]), uintp(first[place + ONE])):
            add_row(total, uintp(segments[g, 0]), weights, row0 + uintp(segments[g, 1]), uintp(segments[g, 2]),
                    factor * shares[g])


@compiled
def _scatter_own(total: Array, block: int, width: int, entries: Array, begin: uintp, end: uintp, section: Array,
                 factor: float, first: Array, segments: Array, shares: Array, diagonal: Array) -> None:
    """Additions where every spike reaches its own channel only."""
    pixel0, weight0, taps, lanes = uintp(section[1]), uintp(section[2]), uintp(section[3]), uintp(width)
    channel0 = uintp(block * width)
    for e in range(begin, end):
        entry = uintp(entries[e])
        channel = entry & uintp(0xFFFF)
        if channel < channel0 or channel >= channel0 + lanes:
            continue
        place = pixel0 + (entry >> LANES)
        row0 = weight0 + channel * taps
        for g in range(uintp(first[place]), uintp(first[place + ONE])):
            into = uintp(segments[g, 0]) + channel - channel0
            weight = row0 + uintp(segments[g, 1]) // lanes
            for j in range(uintp(segments[g, 2]) // lanes):
                total[into + j * lanes] += factor * shares[g] * diagonal[weight + j]


@compiled
def fire_listed(images: int, blocks: int, block0: int, block1: int, pixels: int, width: int, steps: int, total: Array,
                places: Array, extra: Array, base: Array, base_image: int, base_block: int, base_pixel: int,
                potential: Array, counts: Array, threshold: Array, threshold_block: int, threshold_pixel: int, spikes: Array,
                entries: Array, ranges: Array, marks: Array, sections: Array, factors: Array, first: Array,
                segments: Array, shares: Array, weights: Array, block_size: int, diagonal: Array,
                mark_stride: int) -> None:
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
                scatter(total, block, width, row, entries, ranges, marks, sections, factors, first, segments, shares,
                        weights, block_size, diagonal, mark_stride)
                if len(extra) > 0:
                    _add_extra(total, places, extra, uintp(row) * uintp(pixels), block, uintp(pixels), lanes,
                               words * LANES)
                word0 = uintp(row) * uintp(pixels) * words + uintp(block) * groups
                for p in range(uintp(pixels)):
                    for g in range(groups):
                        lane = g * LANES
                        spikes[word0 + p * words + g] = fire_lanes(
                            potential, counts, state + p * lanes + lane, total, uintp(places[p]) + lane,
                            base, base0 + p * uintp(base_pixel) + lane,
                            threshold, theta0 + p * uintp(threshold_pixel) + lane)


@compiled
def _add_extra(total: Array, places: Array, extra: Array, pixel0: uintp, block: int, pixels: uintp, lanes: uintp,
               channels: uintp) -> None:
    for p in range(pixels):
        source = (pixel0 + p) * channels + uintp(block) * lanes
        add_row(total, uintp(places[p]), extra, source, lanes, np.float32(1.0))


@compiled
def gather_currents(images: int, blocks: int, pixels: int, width: int, steps: int, total: Array, places: Array,
                    out: Array, entries: Array, ranges: Array, marks: Array, sections: Array, factors: Array,
                    first: Array, segments: Array, shares: Array, weights: Array, block_size: int,
                    diagonal: Array, mark_stride: int) -> None:
    """The currents themselves, [row, block, pixel, lane]: for the output, which does not spike."""
    size = uintp(pixels * width)
    for block in range(blocks):
        for row in range(images * steps):
            scatter(total, block, width, row, entries, ranges, marks, sections, factors, first, segments, shares,
                    weights, block_size, diagonal, mark_stride)
            out0 = uintp(row * blocks + block) * size
            for p in range(uintp(pixels)):
                for j in range(uintp(width)):
                    out[out0 + p * uintp(width) + j] = total[uintp(places[p]) + j]
                    total[uintp(places[p]) + j] = np.float32(0.0)


@compiled
def _list_words(spikes: Array, word0: uintp, pixels: uintp, words: uintp, entries: Array, at: uintp,
                table: Array, marks: Array, mark: uintp) -> uintp:
    for p in range(pixels):
        for w in range(words):
            word = uintp(spikes[word0 + p * words + w])
            at += list_word(entries, at, table, word, np.uint32((p << LANES) + (w << uintp(4))))
        marks[mark + p] = at
    return at


@compiled
def list_spikes(spikes: Array, row0: int, rows: int, pixels: int, words: int, entries: Array, at: int, ranges: Array,
                section: int, sections: int, marks: Array, mark: int, mark_stride: int,
                table: Array) -> tuple[int, int]:
    """List the spikes of each row as pixel << 16 | channel. Stops early where `entries` may not suffice.

    Returns the first row not done and the place behind the last entry.
    """
    place = uintp(at)
    most = uintp(pixels * words * 16 + 16)
    for row in range(row0, rows):
        if place + most > uintp(len(entries)):
            return row, place
        ranges[row * sections + section, 0] = place
        place = _list_words(spikes, uintp(row * pixels * words), uintp(pixels), uintp(words), entries, place, table,
                            marks, uintp(row) * uintp(mark_stride) + uintp(mark))
        ranges[row * sections + section, 1] = place
    return rows, place


@compiled
def list_pooled(spikes: Array, row0: int, rows: int, pixels: int, words: int, windows: Array, digits: int,
                scratch: Array, narrow: Array, entries: Array, at: int, ranges: Array, section: int, sections: int,
                marks: Array, mark: int, mark_stride: int, table: Array) -> tuple[int, int]:
    """The same for spikes pooled over disjoint windows [window, member].

    How many neurons of a window spike is counted for all channels of a word at once, one bit in each of `digits`
    words; the list of digit d holds the channels whose count has this digit, and weighs 2^d. `spikes` and `scratch` may
    have words of 16, 32 or 64 bits, `words` of them a pixel; `narrow` is `scratch` as words of 16.
    """
    place = uintp(at)
    pooled, members = len(windows), windows.shape[1]
    size = uintp(pooled * words)
    per = uintp(len(narrow) // len(scratch))
    most = uintp(digits) * size * per * LANES + LANES
    for row in range(row0, rows):
        if place + most > uintp(len(entries)):
            return row, place
        _count_windows(spikes, uintp(row * pixels * words), uintp(words), windows, uintp(members), digits, scratch,
                       size)
        for d in range(digits):
            ranges[row * sections + section + d, 0] = place
            place = _list_words(narrow, uintp(d) * size * per, uintp(pooled), uintp(words) * per, entries, place, table,
                                marks, uintp(row) * uintp(mark_stride) + uintp(mark + d * pooled))
            ranges[row * sections + section + d, 1] = place
    return rows, place


@compiled
def _count_windows(spikes: Array, word0: uintp, words: uintp, windows: Array, members: uintp, digits: int,
                   scratch: Array, size: uintp) -> None:
    if members == uintp(4):
        for q in range(uintp(len(windows))):
            a0, b0 = word0 + uintp(windows[q, 0]) * words, word0 + uintp(windows[q, 1]) * words
            c0, d0 = word0 + uintp(windows[q, 2]) * words, word0 + uintp(windows[q, 3]) * words
            for w in range(words):
                a, b, c, d = spikes[a0 + w], spikes[b0 + w], spikes[c0 + w], spikes[d0 + w]
                here = q * words + w
                scratch[here] = a ^ b ^ c ^ d
                scratch[size + here] = (a & b) ^ (c & d) ^ ((a ^ b) & (c ^ d))
                scratch[size + size + here] = a & b & c & d
        return
    for q in range(uintp(len(windows))):
        for w in range(words):
            here = q * words + w
            for k in range(uintp(digits)):
                scratch[k * size + here] = 0
            for m in range(members):
                carry = spikes[word0 + uintp(windows[q, m]) * words + w]
                k = ZERO
                while carry != 0:
                    digit = scratch[k * size + here]
                    scratch[k * size + here] = digit ^ carry
                    carry = digit & carry
                    k += ONE


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
def measure_fit(spikes: Array, images: int, steps: int, neurons: int, counts: Array, target: Array, first_step: int,
                error: Array) -> None:
    """error[step, lane] += |count / t - target|^2; `counts` [image, neuron] come in as before the chunk and go on."""
    words = uintp(neurons) // LANES
    for image in range(uintp(images)):
        for w in range(words):
            fit_lanes(spikes, image * uintp(steps) * words + w, words, uintp(steps), counts, target,
                      image * uintp(neurons) + w * LANES, uintp(first_step), error)


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
