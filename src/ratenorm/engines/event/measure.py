"""What a chunk of spikes amounts to: counts, synaptic operations, fit, first spikes; and spikes as floats."""
# mypy: disable-error-code="call-arg, return-value, assignment, arg-type, var-annotated"

from __future__ import annotations

import numpy as np
from numpy import uintp

from ratenorm.engines.event.arrays import Array
from ratenorm.engines.event.compiled import compiled
from ratenorm.engines.event.scatter import LANES, ONE, ZERO
from ratenorm.engines.event.vector_bits import floats_of, ones, spikes_against


@compiled
def tally(
    spikes: Array, row0: int, row1: int, size: int, fan_out: Array, by_word: bool, counted: Array, paths: Array
) -> None:
    """Spikes of some rows of `size` words and their synaptic operations.

    `fan_out` has one entry a word of 16 channels, or where it differs between them one a neuron.
    """
    for row in range(uintp(row0), uintp(row1)):
        number, reached = 0, 0
        for w in range(uintp(size)):
            word = spikes[row * uintp(size) + w]
            n = ones(np.uint64(word))
            number += n
            reached += n * fan_out[w] if by_word else _reached(uintp(word), fan_out, w * LANES)
        counted[row], paths[row] = number, reached


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
