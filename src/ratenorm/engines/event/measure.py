"""What a chunk of spikes amounts to: counts, synaptic operations, fit, first spikes; and spikes as floats."""
# mypy: disable-error-code="call-arg, return-value, assignment, arg-type, var-annotated"

from __future__ import annotations

import numpy as np
from numpy import uintp

from ratenorm.engines.event.arrays import Array
from ratenorm.engines.event.compiled import compiled
from ratenorm.engines.event.fire import Sizes
from ratenorm.engines.event.layout import BY_PIXEL, BY_WORD
from ratenorm.engines.event.scatter import LANES, ONE, ZERO
from ratenorm.engines.event.vector_bits import floats_of, ones, spikes_against

FOUR = uintp(4)


@compiled
def tally(
    spikes: Array, sizes: Sizes, block0: int, block1: int, fan_out: Array, by: int, counted: Array, paths: Array
) -> None:
    """Spikes of some blocks and their synaptic operations, row by row.

    `fan_out` has one entry a pixel, or where it differs between channels one a word of 16 channels, or one a neuron.
    """
    groups = uintp(sizes.width) // LANES
    words = uintp(sizes.blocks) * groups
    first, last, pixels = uintp(block0) * groups, uintp(block1) * groups, uintp(sizes.pixels)
    for row in range(uintp(sizes.images * sizes.steps)):
        number, reached = 0, 0
        row0 = row * pixels * words
        for p in range(pixels):
            if by == BY_PIXEL:
                n = _count(spikes, row0 + p * words + first, row0 + p * words + last)
                number += n
                reached += n * fan_out[p]
                continue
            for w in range(p * words + first, p * words + last):
                word = spikes[row0 + w]
                n = ones(np.uint64(word))
                number += n
                reached += n * fan_out[w] if by == BY_WORD else _reached(uintp(word), fan_out, w * LANES)
        counted[row], paths[row] = number, reached


@compiled
def _count(spikes: Array, begin: uintp, end: uintp) -> int:
    """The set bits of some words, four words at a time: as one of 64 bits to the compiler."""
    number = 0
    while begin + FOUR <= end:
        low = uintp(spikes[begin]) | uintp(spikes[begin + ONE]) << LANES
        high = uintp(spikes[begin + uintp(2)]) | uintp(spikes[begin + uintp(3)]) << LANES
        number += ones(low | high << uintp(32))
        begin += FOUR
    while begin < end:
        number += ones(np.uint64(spikes[begin]))
        begin += ONE
    return number


@compiled
def gather(noted: Array, by_row: Array) -> int:
    """Sum what the parts noted; returns the number of spikes. (NumPy takes longer to begin than this to end.)"""
    total = 0
    for row in range(by_row.shape[1]):
        for what in range(2):
            found = 0
            for part in range(len(noted)):
                found += noted[part, what, row]
            by_row[what, row] = found
        total += by_row[0, row]
    return total


@compiled
def _reached(word: uintp, fan_out: Array, first: uintp) -> int:
    paths = 0
    while word != ZERO:
        if word & ONE:
            paths += fan_out[first]
        word >>= ONE
        first += ONE
    return paths


@compiled
def unpack(spikes: Array, words: int, channels: int, out: Array) -> None:
    """Words of spikes as floats, [row, pixel, channel]."""
    count = uintp(channels)
    whole = count // LANES
    for place in range(uintp(len(out)) // count):
        word0 = place * uintp(words)
        for w in range(whole):
            floats_of(out, place * count + w * LANES, spikes[word0 + w])
        for c in range(whole * LANES, count):
            out[place * count + c] = np.float32((uintp(spikes[word0 + whole]) >> (c & uintp(15))) & ONE)


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
