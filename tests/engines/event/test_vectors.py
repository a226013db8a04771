"""The vector instructions, each against what it says in plain numpy."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numpy import uintp

from ratenorm.engines.event import vector_bits
from ratenorm.engines.event.arrays import aligned, bit_positions, zeros
from ratenorm.engines.event.lanes import has_feature
from ratenorm.engines.event.vector_add import add_row, fetch, many_1x1, many_3x3, one_1x1, one_3x3
from ratenorm.engines.event.vector_bits import floats_of, ones, spikes_against
from ratenorm.engines.event.vector_fire import (
    fire_both,
    fire_constant_1,
    fire_constant_2,
    fire_constant_4,
    fire_total,
    fire_whole,
    settle_row,
)

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return aligned(RNG.integers(-16, 17, shape).astype(np.float32) / 8)


@pytest.mark.parametrize(
    "compressing",
    [False, pytest.param(True, marks=pytest.mark.skipif(not has_feature("avx512f"), reason="no AVX-512"))],
)
def test_list_word_lists_the_set_bits_in_order(compressing: bool) -> None:
    list_word = vector_bits._list_word(compressing)

    @numba.njit
    def run(entries, table, word, first):
        return list_word(entries, uintp(3), table, uintp(word), np.uint32(first))

    table = bit_positions()
    for word in (0, 1, 0x8000, 0xFFFF, 0x0101, *RNG.integers(0, 1 << 16, 50).tolist()):
        entries = np.zeros(32, np.uint32)
        expected = [1000 + bit for bit in range(16) if word >> bit & 1]
        assert run(entries, table, word, 1000) == len(expected)
        assert entries[3 : 3 + len(expected)].tolist() == expected
        assert not entries[:3].any()


def test_ones_and_floats_of_read_a_word() -> None:
    @numba.njit
    def run(out, word):
        floats_of(out, uintp(1), np.uint16(word))
        return ones(np.uint64(word))

    for word in (0, 0xFFFF, 0x8001, 0x1234):
        out = np.full(18, 7.0, np.float32)
        bits = [float(word >> bit & 1) for bit in range(16)]
        assert run(out, word) == sum(bits)
        assert out.tolist() == [7.0, *bits, 7.0]


@pytest.mark.parametrize("vectors", [1, 2, 3, 4, 6, 7, 12])
def test_add_row_adds_any_number_of_vectors(vectors: int) -> None:
    @numba.njit
    def run(total, rows, length, factor):
        add_row(total, uintp(2), rows, uintp(5), uintp(length), factor)

    total, rows, length = floats(300), floats(300), vectors * 16
    expected = total.copy()
    expected[2 : 2 + length] += np.float32(0.5) * rows[5 : 5 + length]
    run(total, rows, length, np.float32(0.5))
    assert np.array_equal(total, expected)


@pytest.mark.parametrize("shape", ["3x3", "1x1"])
def test_a_stencil_adds_each_spikes_weights_by_its_digit(shape: str) -> None:
    one, many, runs, run_size = (one_3x3, many_3x3, 3, 96) if shape == "3x3" else (one_1x1, many_1x1, 1, 32)

    @numba.njit
    def each(total, weights, entries, factors):
        for entry in entries:
            one(total, uintp(4), uintp(150), weights, uintp(0), uintp(12), factors, uintp(1), entry)

    @numba.njit
    def together(total, weights, entries, factors):
        many(total, uintp(4), uintp(150), weights, uintp(0), uintp(12), factors, uintp(1), entries, uintp(0),
             uintp(len(entries)))  # fmt: skip

    factors = np.array([99.0, 0.25, 0.5, 1.0], np.float32)  # begin at 1
    weights, start = floats(4 * runs * run_size), floats(600)
    entries = np.array([(9 << 16) + (digit << 12) + channel for digit, channel in ((0, 3), (2, 0), (1, 3))], np.uint32)
    expected = start.copy()
    for digit, channel in ((0, 3), (2, 0), (1, 3)):
        row = weights[channel * runs * run_size :]
        for r in range(runs):
            place = 4 + 150 * r
            expected[place : place + run_size] += factors[1 + digit] * row[r * run_size : (r + 1) * run_size]
    for kernel in (each, together):
        total = start.copy()
        kernel(total, weights, entries, factors)
        assert np.array_equal(total, expected)


def reference(v: np.ndarray, current: np.ndarray, theta: np.ndarray) -> np.ndarray:
    v += current
    fired = v >= theta
    v -= fired * theta
    return fired


@pytest.mark.parametrize(
    ("fire", "floats_count", "wholes_count"), [(fire_total, 1, 0), (fire_whole, 0, 1), (fire_both, 1, 1)]
)
def test_fire_is_equation_3(fire: object, floats_count: int, wholes_count: int) -> None:
    """Wherever the currents are; what is read is cleared, and nothing else."""

    @numba.njit
    def run(v, recent, total, whole, units, base, theta):
        u = uintp(0)
        return fire(v, recent, u, uintp(3), total, whole, u, units, u, base, u, theta, u)

    v, total, base, theta = floats(16), floats(16), floats(16), aligned(np.full(16, 1.0, np.float32))
    whole = aligned(RNG.integers(-9, 9, 16).astype(np.int32))
    units = aligned(np.float32(2.0) ** RNG.integers(-4, 2, 16).astype(np.float32))
    current = floats_count * total + wholes_count * units * whole
    v[0] = 1.0 - current[0] - base[0]  # reaches the threshold exactly: fires
    recent, expected = zeros(20, np.uint8), v.copy()
    fired = reference(expected, current + base, theta)
    before = total.copy(), whole.copy()
    word = run(v, recent, total, whole, units, base, theta)
    assert fired[0]
    assert [bool(word >> k & 1) for k in range(16)] == fired.tolist()
    assert np.array_equal(v, expected)
    assert np.array_equal(recent[3:19], fired)
    assert recent[:3].sum() + recent[19:].sum() == 0
    assert np.array_equal(total, (1 - floats_count) * before[0])
    assert np.array_equal(whole, (1 - wholes_count) * before[1])


def test_settling_brings_whole_numbers_to_the_other_currents() -> None:
    @numba.njit
    def run(total, whole, units):
        settle_row(total, whole, uintp(16), units, uintp(0))

    total, units = floats(64), aligned(np.float32(2.0) ** RNG.integers(-4, 2, 32).astype(np.float32))
    whole = aligned(RNG.integers(-9, 9, 64).astype(np.int32))
    expected, left = total.copy(), whole.copy()
    expected[16:48] += units * whole[16:48]
    left[16:48] = 0
    run(total, whole, units)
    assert np.array_equal(total, expected)
    assert np.array_equal(whole, left)


@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_fetching_reads_whole_lines_and_changes_nothing(dtype: type) -> None:
    @numba.njit
    def run(weights, begin, count):
        return fetch(weights, uintp(begin), uintp(count))

    weights = aligned(RNG.integers(0, 99, 1024).astype(dtype))
    before = weights.copy()
    assert run(weights, 0, 0) == 0
    lines = weights.view(np.int32)[:256].reshape(16, 16).sum(0, dtype=np.int32)
    assert run(weights, 0, 1024 // weights.itemsize) == np.bitwise_xor.reduce(lines)
    assert np.array_equal(weights, before)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_fire_constant_is_equation_3_over_many_steps(groups: int) -> None:
    fire = {1: fire_constant_1, 2: fire_constant_2, 4: fire_constant_4}[groups]

    @numba.njit
    def run(v, n, current, theta, spikes, stride, steps):
        fire(v, n, uintp(0), current, uintp(0), theta, uintp(0), spikes, uintp(0), uintp(stride), uintp(steps))

    size, steps = 16 * groups, 9
    v, current, theta = floats(size), floats(size), aligned(RNG.integers(1, 3, size).astype(np.float32))
    n, spikes, expected = zeros(size, np.float32), np.zeros((steps, groups + 1), np.uint16), v.copy()
    run(v, n, current, theta, spikes.reshape(-1), groups + 1, steps)
    total = np.zeros(size)
    for step in range(steps):
        fired = reference(expected, current, theta)
        total += fired
        assert np.array_equal(np.unpackbits(spikes[step, :groups].view(np.uint8), bitorder="little"), fired)
    assert np.array_equal(v, expected)
    assert np.array_equal(n, total)
    assert not spikes[:, groups].any()


def test_spikes_against_sums_counts_and_targets_of_those_that_spike() -> None:
    @numba.njit
    def run(spikes, counts, target, out):
        spikes_against(spikes, uintp(1), uintp(2), counts, target, uintp(0), out)

    spikes = np.array([0xFFFF, 0b101, 0x8000], np.uint16)
    counts, target, out = aligned(np.arange(32, dtype=np.int32)), floats(32), np.array([10.0, 20.0])
    fired = np.zeros(32, bool)
    fired[[0, 2, 31]] = True
    before = counts.copy()
    run(spikes, counts, target, out)
    assert out[0] == 10 + before[fired].sum()
    assert out[1] == pytest.approx(20 + target[fired].astype(float).sum())
    assert np.array_equal(counts, before + fired)
