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
def tally(spikes: Array, row0: int, row1: int, words: int, fan_out: Array, counted: Array, operations: Array) -> None:
    """Spikes and synaptic operations of each row; `fan_out` has one entry a word of 16 channels."""
    for row in range(row0, row1):
        base = uintp(row) * uintp(words)
        number, paths = 0, 0
        for w in range(uintp(words)):
            n = ones(np.uint64(spikes[base + w]))
            number += n
            paths += n * fan_out[w]
        counted[row], operations[row] = number, paths


@compiled
def tally_each(
    spikes: Array, row0: int, row1: int, words: int, fan_out: Array, counted: Array, operations: Array
) -> None:
    """The same where the fan-out differs between channels: one entry a neuron."""
    for row in range(row0, row1):
        base = uintp(row) * uintp(words)
        number, paths = 0, 0
        for w in range(uintp(words)):
            word = uintp(spikes[base + w])
            bit = ZERO
            while word != ZERO:
                if word & ONE:
                    number += 1
                    paths += fan_out[w * LANES + bit]
                word >>= ONE
                bit += ONE
        counted[row], operations[row] = number, paths


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
