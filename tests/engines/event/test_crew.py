"""Threads that share a job: every part is done once, whoever waits, rests or fails."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch
from random_graphs import random_images, random_net

from ratenorm.engines.event.board import where
from ratenorm.engines.event.compiled import compiled
from ratenorm.engines.event.crew import Crew
from ratenorm.engines.event.jobs import tally_words
from ratenorm.engines.event.simulation import EventSimulation

ROWS, WORDS = 37, 5


def counted(crew: Crew, seed: int, parts: int) -> bool:
    """Count the spikes of random words together; whether that is right."""
    words = np.random.default_rng(seed).integers(0, 1 << 16, ROWS * WORDS).astype(np.uint16)
    fan_out = np.arange(WORDS, dtype=np.int64)
    noted = np.full((2, ROWS), -1, np.int64)
    crew.run(tally_words, parts, (ROWS, WORDS), where(words, fan_out, noted))
    ones = np.array([int(w).bit_count() for w in words]).reshape(ROWS, WORDS)
    return bool((noted[0] == ones.sum(1)).all() and (noted[1] == ones @ fan_out).all())


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_all_parts_are_done(helpers: int) -> None:
    with Crew(helpers) as crew:
        for turn in range(200):
            assert counted(crew, turn, parts=1 + turn % 7)


def test_helpers_come_back_from_a_rest_and_from_boredom() -> None:
    with Crew(2) as crew:
        for turn in range(20):
            crew.rest()
            assert counted(crew, turn, parts=3)
        time.sleep(0.05)  # longer than their patience
        assert counted(crew, 99, parts=3)


def test_no_thread_is_left_behind_even_by_an_error() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="no number"), Crew(2) as crew:
        crew.run(tally_words, 3, (ROWS, "no number"), [])  # type: ignore[arg-type]
    assert threading.active_count() == before


@compiled
def _bad(board: int, part: int) -> int:
    if part >= 0:
        raise ValueError("no good")
    return 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("parts", [1, 2])
def test_a_job_that_fails_is_said_and_the_next_one_runs(parts: int) -> None:
    with Crew(1) as crew:
        with pytest.raises(RuntimeError, match="_bad failed in compiled code"):
            crew.run(_bad, parts, (), ())
        assert counted(crew, 5, parts)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("images", [1, 5])
def test_the_number_of_threads_changes_nothing(threads: int, images: int) -> None:
    """One image: a crew on each layer. Several: a thread on each group. Torch gets its threads back."""
    net = random_net(3)
    x = random_images(net, images, 3)
    expected = EventSimulation(net, x).advance(6)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(EventSimulation(net, x).advance(6), expected)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
