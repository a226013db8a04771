"""The numbers behind the report, against figures worked out by hand."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratenorm.records import papers
from ratenorm.report import energy, measures, summary, words
from ratenorm.report.style import shorten, spread

RUN: dict[str, Any] = {
    "name": "r", "network": "n", "steps": 4, "neurons": 10, "ann_accuracy": 0.9, "accuracy": [0.5, 0.9, 0.8, 0.89],
    "spikes": [1, 2, 3, 4], "synaptic_ops": [10, 20, 30, 40], "input_macs": 100, "membrane_updates": 5,
    "images_per_second": 50.0, "layers": [],
}  # fmt: skip
ANN = {"name": "n", "accuracy": 0.9, "macs": 1000, "images_per_second": 500.0, "parameters": 3}


def run_with(**changes: Any) -> measures.Run:
    return measures.Run("r", {**RUN, **changes}, ANN, 100)


def test_energy_by_hand() -> None:
    used = energy.spiking(RUN, 2)
    assert used.input_layer == pytest.approx(460)
    assert used.synapses == pytest.approx(27)
    assert used.membranes == pytest.approx(9)
    assert used.total == pytest.approx(496)
    assert energy.spiking_integer(RUN, 2) == pytest.approx(100 * 0.3 + 40 * 0.1)
    assert energy.analog(1000) == pytest.approx(4600)
    assert energy.analog_quantised(1000, 8) == pytest.approx(300)
    assert energy.integer_mac(32) - energy.INT32_ADD == pytest.approx(3.2)  # the source says 3.1


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 8, 15, 16, 255, 256])
def test_bits_are_the_ceiling_of_the_logarithm(steps: int) -> None:
    assert energy.equivalent_bits(steps) == math.ceil(math.log2(steps + 1))


def test_the_target_must_last() -> None:
    # Within a point at step 2, lost at step 3, back for good (by exactly one point) at step 4.
    assert run_with().target_step == 4
    assert run_with(accuracy=[0.5, 0.9, 0.9, 0.95]).target_step == 2
    never = run_with(accuracy=[0.9, 0.9, 0.9, 0.8])
    assert never.target_step is None
    assert never.reading_step == 4


def test_derived_figures() -> None:
    run = run_with()
    assert run.loss_at(1) == pytest.approx(0.4)
    assert run.spikes_per_neuron(3) == pytest.approx(0.6)
    assert run.slowdown == pytest.approx(10)
    assert run.energy_ratio == pytest.approx((460 + 90 + 18) / 4600)
    assert run_with(images_per_second=None).slowdown is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.floats(0, 1)), min_size=1, max_size=20))
def test_the_front_is_exactly_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    front = measures.pareto(points)
    for i, (steps, accuracy) in enumerate(points):
        beaten = any((s <= steps and a >= accuracy) and (s, a) != (steps, accuracy) for s, a in points)
        assert (points[i] in [points[f] for f in front]) == (not beaten)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_spread_keeps_order_and_distance(positions: list[float]) -> None:
    moved = spread(positions, 0.1)
    ordered = sorted(moved)
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(ordered))
    pairs = sorted(zip(positions, moved))
    assert all(b[1] > a[1] for a, b in pairwise(pairs) if b[0] > a[0])
    assert spread([0.1, 0.9], 0.1) == [0.1, 0.9]


def test_labels_are_unique(small: dict[str, Any]) -> None:
    other = {**small, "data": {**small["data"], "name": "cifar10"}}
    labels = [run.label for run in measures.runs_of([small, small, other])]
    assert len(set(labels)) == len(labels) == 6
    assert any("cifar10" in label for label in labels)


def test_the_leader_is_the_soonest_else_the_most_accurate() -> None:
    soon, late = run_with(accuracy=[0.1, 0.9, 0.9, 0.9]), run_with(accuracy=[0.1, 0.1, 0.9, 0.9])
    assert measures.leader([late, soon]) is soon
    low, high = run_with(accuracy=[0.1] * 4), run_with(accuracy=[0.2] * 4)
    assert measures.leader([low, high]) is high
    assert measures.leader([low, late]) is late
    assert measures.leader([]) is None


def test_shown_steps_are_powers_of_two_and_the_end() -> None:
    assert measures.shown_steps([run_with(steps=10)]) == [1, 2, 4, 8, 10]
    assert measures.shown_steps([]) == []


def test_a_layer_settles_where_k_stays_low() -> None:
    assert measures.layer_settled([1, 0.05, 0.2, 0.09, 0.01]) == 4
    assert measures.layer_settled([1, None]) is None


def test_sentences_carry_the_numbers() -> None:
    run = run_with(accuracy=[0.5, 0.9, 0.9, 0.95])
    assert "after 2 time-steps, with 0.30 spikes per neuron and 10.8 %" in summary.headline([run])
    assert "from step 2 on" in summary.target(run)
    assert "5.00 points gained" in summary.target(run)
    assert "10 times slower" in summary.background(run)
    assert "2 times faster" in summary.background(run_with(images_per_second=1000.0))
    lost = run_with(accuracy=[0.1] * 4)
    assert "No run came within one point" in summary.headline([lost])
    assert "80.00 points lost" in summary.target(lost)
    assert "no simulated network" in summary.headline([])
    assert summary.tiles([]) == []
    assert summary.Tile("5.00", "points gained at step 4") in summary.tiles([run])
    assert summary.Tile("80.00", "points lost at step 4") in summary.tiles([lost])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (words.count(12), "12"), (words.count(1234), "1,234"), (words.count(15_234), "15.2 k"),
        (words.count(3.4e6), "3.4 M"), (words.count(2e9), "2 G"), (words.count(0.1234), "0.12"),
        (words.joules(5_010_000), "5.01 µJ"), (words.joules(12), "12 pJ"), (words.joules(3.2e9), "3.2 mJ"),
        (words.joules(1500), "1.5 nJ"), (words.duration(5), "5 s"), (words.duration(143), "2 min"),
        (words.duration(7500), "2 h 05 min"), (words.several(1, "step"), "1 step"), (words.points(0), "no loss"),
        (words.several(1000, "step"), "1,000 steps"), (shorten("x" * 50, 10), "x" * 9 + "…"),
    ],
)  # fmt: skip
def test_numbers_read_well(given: str, text: str) -> None:
    assert given == text


def test_every_paper_the_methods_name_is_known() -> None:
    needed = ["ding2021", "rueckauer2017", "diehl2015", "sengupta2019", "han2020", "kim2020", "cao2015", "bu2022"]
    assert all(key in papers.PAPERS for key in needed)
    assert "no reference" in papers.reference("nobody1999")
