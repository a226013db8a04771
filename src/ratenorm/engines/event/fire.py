"""Currents to spikes: Eq. 3 for a population over a chunk of steps.

Spikes are words of 16 bits, [row, pixel, word] with row = image * steps + step. A population's state lies
[image, block, pixel, lane]: channels are cut into blocks so that a block's weights stay in the second-level cache while
all images and steps pass over them.
"""
# mypy: disable-error-code="call-arg, return-value, assignment, arg-type, var-annotated"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import uintp

from ratenorm.engines.event.arrays import Array
from ratenorm.engines.event.board import call_add
from ratenorm.engines.event.compiled import compiled
from ratenorm.engines.event.scatter import LANES, ZERO, Feed, Scratch
from ratenorm.engines.event.vector_add import add_row, add_where, fetch
from ratenorm.engines.event.vector_fire import (
    fire_both,
    fire_constant_1,
    fire_constant_2,
    fire_constant_4,
    fire_total,
    fire_whole,
)
from ratenorm.engines.event.vector_lookup import fire_lookup, fire_lookup_skip

TOTAL, WHOLE, BOTH = 0, 1, 2  # where the currents are: in floats, in whole numbers of one unit a lane, in both


class Sizes(NamedTuple):
    """Of a population and of the chunk it is run over."""

    images: int
    steps: int
    pixels: int
    blocks: int
    width: int


class Neurons(NamedTuple):
    """The state of a population; `_block` and `_pixel` are distances in the thresholds, 0 where all share them."""

    potential: Array
    counts: Array
    threshold: Array
    threshold_block: int
    threshold_pixel: int
    spikes: Array


class Base(NamedTuple):
    """The part of the current that no spike changes, and how far it is from one image, block, pixel to the next."""

    values: Array
    image: int
    block: int
    pixel: int


class LookupTables(NamedTuple):
    """Of a layer that looks up (see lookup.Lookup): rows, units, what a skip connection brings, how windows lie."""

    rows: Array
    units: Array
    skip_scale: Array
    source_height: int
    source_width: int
    top: int
    left: int
    width: int
    size: int  # of a picture with its padding


class Adder(NamedTuple):
    """Where the machine code of `jobs.add` lies, and for whom it works."""

    code: int
    board: int
    part: int


@compiled
def fire_still(sizes: Sizes, block0: int, block1: int, neurons: Neurons, base: Base, fresh: bool) -> None:
    """A population whose current does not change: all steps at once. `fresh`: potentials and counts begin with zero."""
    lanes, steps, blocks = uintp(sizes.width), uintp(sizes.steps), uintp(sizes.blocks)
    size, words = uintp(sizes.pixels) * lanes, blocks * lanes // LANES
    stride = uintp(sizes.pixels) * words
    v, n, theta, spikes, current = neurons.potential, neurons.counts, neurons.threshold, neurons.spikes, base.values
    fours = size // uintp(64) * uintp(64) if sizes.blocks == 1 and neurons.threshold_pixel == 0 else ZERO
    fours = fours if uintp(base.pixel) == lanes else ZERO
    for b in range(uintp(sizes.images)):
        for k in range(uintp(block0), uintp(block1)):
            state, base0 = (b * blocks + k) * size, b * uintp(base.image) + k * uintp(base.block)
            _begin(neurons, state, size, fresh)
            at = ZERO
            while at < size:
                pixel = at // lanes
                lane = at - pixel * lanes
                word = b * steps * stride + pixel * words + (k * lanes + lane) // LANES
                which = k * uintp(neurons.threshold_block) + lane + pixel * uintp(neurons.threshold_pixel)
                here, there = state + at, base0 + pixel * uintp(base.pixel) + lane
                if at < fours:
                    fire_constant_4(v, n, here, current, there, theta, which, spikes, word, stride, steps)
                    at += uintp(64)
                elif lanes == uintp(32):
                    fire_constant_2(v, n, here, current, there, theta, which, spikes, word, stride, steps)
                    at += uintp(32)
                else:
                    fire_constant_1(v, n, here, current, there, theta, which, spikes, word, stride, steps)
                    at += LANES


@compiled
def fire_listed(
    sizes: Sizes,
    block0: int,
    block1: int,
    neurons: Neurons,
    base: Base,
    extra: Array,
    scratch: Scratch,
    feed: Feed,
    adder: Adder,
    together: int,
    fresh: bool,
) -> None:
    """A population driven by listed spikes, by currents computed elsewhere (`extra`, may be empty), and by `base`.

    So many steps `together`; more than one only where `scatter` can take several rows, and nothing else brings current.
    """
    total, places, lanes = scratch.total, scratch.places, uintp(sizes.width)
    size = uintp(sizes.pixels) * lanes
    total[:] = 0.0
    scratch.whole[:] = 0
    shorts, unit0 = _in_short(feed)
    loose = len(feed.skip) > 0 or len(extra) > 0 or shorts < len(feed.sections)
    reading = TOTAL if shorts != 1 else BOTH if loose else WHOLE
    for block in range(block0, block1):
        if feed.fetch:
            seen = fetch(feed.weights, uintp(block * feed.block_size), uintp(feed.block_size))
            seen += fetch(feed.short, uintp(block * feed.short_size), uintp(feed.short_used))
            scratch.whole[-1] = seen  # a place that nothing reads
        units = unit0 + uintp(block) * lanes
        for image in range(sizes.images):
            state = (uintp(image) * uintp(sizes.blocks) + uintp(block)) * size
            base0 = uintp(image) * uintp(base.image) + uintp(block) * uintp(base.block)
            _begin(neurons, state, size, fresh)
            for step in range(0, sizes.steps, together):
                row, rows = image * sizes.steps + step, min(together, sizes.steps - step)
                call_add(adder.code, adder.board, adder.part, block, row, rows, shorts > 1)
                if len(feed.skip) > 0:
                    _add_skip(total, places, feed, row, block, sizes)
                if len(extra) > 0:
                    _add_extra(total, places, extra, row, block, sizes)
                _fire_steps(sizes, row, rows, block, state, base0, neurons, base, scratch, feed.units, units, reading)
            for p in range(uintp(sizes.pixels)):
                for lane in range(lanes):
                    neurons.counts[state + p * lanes + lane] += np.float32(scratch.recent[uintp(places[p]) + lane])
                    scratch.recent[uintp(places[p]) + lane] = 0


@compiled
def fire_looked_up(
    sizes: Sizes,
    neurons: Neurons,
    base: Base,
    source: Array,
    plane: Array,
    tables: LookupTables,
    skip: Array,
    fresh: bool,
) -> None:
    """A population whose currents are looked up from the spikes around each pixel (lookup.py): all steps at once."""
    size, pixels, steps = uintp(sizes.pixels) * LANES, uintp(sizes.pixels), uintp(sizes.steps)
    words, line = uintp(tables.size), uintp(tables.width) + uintp(2)
    v, n, theta, spikes, still = neurons.potential, neurons.counts, neurons.threshold, neurons.spikes, base.values
    for image in range(uintp(sizes.images)):
        _into_planes(source, image * steps, steps, plane, tables)
        state = image * size
        _begin(neurons, state, size, fresh)
        for p in range(pixels):
            y = p // uintp(tables.width)
            first = p + uintp(2) * y
            at, word = state + p * LANES, image * steps * pixels + p
            b_at, t_at = image * uintp(base.image) + p * uintp(base.pixel), p * uintp(neurons.threshold_pixel)
            around = tables.units, tables.rows, plane, first, line, words
            if len(skip) > 0:
                fire_lookup_skip(
                    v, n, at, still, b_at, theta, t_at, *around, spikes, word, pixels, steps, skip, tables.skip_scale
                )
            else:
                fire_lookup(
                    v, n, at, still, b_at, theta, t_at, *around, spikes, word, pixels, steps, skip, tables.skip_scale
                )


@compiled
def _into_planes(source: Array, row: uintp, steps: uintp, plane: Array, tables: LookupTables) -> None:
    """The words of some rows, each picture with its padding, which is left zero."""
    height, width, line = uintp(tables.source_height), uintp(tables.source_width), uintp(tables.width) + uintp(2)
    for step in range(steps):
        for y in range(height):
            there = step * uintp(tables.size) + (y + uintp(tables.top)) * line + uintp(tables.left)
            here = ((row + step) * height + y) * width
            for x in range(width):
                plane[there + x] = source[here + x]


@compiled
def _begin(neurons: Neurons, state: uintp, size: uintp, fresh: bool) -> None:
    if fresh:
        for at in range(state, state + size):
            neurons.potential[at] = np.float32(0.0)
            neurons.counts[at] = np.float32(0.0)


@compiled
def _in_short(feed: Feed) -> tuple[int, uintp]:
    """How many sections add in 16 bits, and where the units of the last of them begin."""
    count, unit0 = 0, ZERO
    for k in range(len(feed.sections)):
        if feed.sections[k, 9] > 0:
            count, unit0 = count + 1, uintp(feed.sections[k, 10])
    return count, unit0


@compiled
def _fire_steps(
    sizes: Sizes,
    row: int,
    rows: int,
    block: int,
    state: uintp,
    base0: uintp,
    neurons: Neurons,
    base: Base,
    scratch: Scratch,
    units: Array,
    unit0: uintp,
    reading: int,
) -> None:
    lanes, pixels = uintp(sizes.width), uintp(sizes.pixels)
    groups = lanes // LANES
    words = uintp(sizes.blocks) * groups
    word0 = uintp(row) * pixels * words + uintp(block) * groups
    theta0, plane = uintp(block) * uintp(neurons.threshold_block), uintp(len(scratch.total))
    v, total, whole, recent, places = neurons.potential, scratch.total, scratch.whole, scratch.recent, scratch.places
    spikes, threshold, still = neurons.spikes, neurons.threshold, base.values
    for p in range(pixels):
        v_at, at, word = state + p * lanes, uintp(places[p]), word0 + p * words
        b_at, t_at = base0 + p * uintp(base.pixel), theta0 + p * uintp(neurons.threshold_pixel)
        for r in range(uintp(rows)):
            for g in range(groups):
                j = g * LANES
                v_j, n_j, unit, b_j, t_j = v_at + j, at + j, unit0 + j, b_at + j, t_at + j
                at_j = n_j + r * plane
                if reading == WHOLE:
                    fired = fire_whole(v, recent, v_j, n_j, total, whole, at_j, units, unit, still, b_j, threshold, t_j)
                elif reading == TOTAL:
                    fired = fire_total(v, recent, v_j, n_j, total, whole, at_j, units, unit, still, b_j, threshold, t_j)
                else:
                    fired = fire_both(v, recent, v_j, n_j, total, whole, at_j, units, unit, still, b_j, threshold, t_j)
                spikes[word + g] = fired
            word += pixels * words


@compiled
def _add_extra(total: Array, places: Array, extra: Array, row: int, block: int, sizes: Sizes) -> None:
    lanes, pixels = uintp(sizes.width), uintp(sizes.pixels)
    for p in range(pixels):
        source = ((uintp(row) * pixels + p) * uintp(sizes.blocks) + uintp(block)) * lanes
        add_row(total, uintp(places[p]), extra, source, lanes, np.float32(1.0))


@compiled
def _add_skip(total: Array, places: Array, feed: Feed, row: int, block: int, sizes: Sizes) -> None:
    lanes, pixels = uintp(sizes.width), uintp(sizes.pixels)
    groups = lanes // LANES
    for p in range(pixels):
        word0 = ((uintp(row) * pixels + p) * uintp(sizes.blocks) + uintp(block)) * groups
        for g in range(groups):
            scale = uintp(block) * lanes + g * LANES
            add_where(total, uintp(places[p]) + g * LANES, feed.skip_scale, scale, feed.skip[word0 + g])


@compiled
def gather_currents(sizes: Sizes, block0: int, block1: int, scratch: Scratch, adder: Adder, out: Array) -> None:
    """The currents themselves, [row, block, pixel, lane]: for the output, which does not spike."""
    lanes = uintp(sizes.width)
    scratch.total[:] = 0.0
    scratch.whole[:] = 0
    for block in range(block0, block1):
        for row in range(sizes.images * sizes.steps):
            call_add(adder.code, adder.board, adder.part, block, row, 1, True)
            out0 = uintp(row * sizes.blocks + block) * uintp(sizes.pixels) * lanes
            for p in range(uintp(sizes.pixels)):
                there = uintp(scratch.places[p])
                for j in range(lanes):
                    out[out0 + p * lanes + j] = scratch.total[there + j]
                    scratch.total[there + j] = np.float32(0.0)
