"""Threads that share a job: every part is done once, whoever waits, rests or fails."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from random_graphs import random_images, random_net

from ratenorm.engines.event.arrays import bit_positions, zeros
from ratenorm.engines.event.board import FIRST_NUMBER, new_boards, read, stop, where, write
from ratenorm.engines.event.compiled import Job, code_of, compiled
from ratenorm.engines.event.crew import Crew, hired
from ratenorm.engines.event.jobs import DONE, plain_list
from ratenorm.engines.event.simulation import EventSimulation

ROWS, WORDS = 37, 5


def done(crew: Crew, job: Job, parts: int, numbers: Sequence[int] = (), arrays: Sequence[np.ndarray] = ()) -> None:
    """One job, by as many of the crew as there are parts."""
    boards = new_boards(1)
    write(boards[0], code_of(job), min(parts, crew.size), numbers, where(*arrays))
    assert crew.follow(boards) == (1, 0)


def listed(crew: Crew, seed: int, parts: int) -> bool:
    """List the spikes of random words together; whether that is right."""
    words = np.random.default_rng(seed).integers(0, 1 << 16, ROWS * WORDS).astype(np.uint16)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").reshape(ROWS, -1)
    entries, by_row = zeros(bits.size + 16 * ROWS, np.uint32), bits.sum(1).astype(np.int64)
    ranges, marks = np.zeros((ROWS, 2), np.uint64), np.zeros(ROWS, np.uint32)
    numbers = (ROWS, 1, WORDS, 0, 1, 0, 1, 0)  # one pixel, one section
    done(crew, plain_list, parts, numbers, [words, entries, by_row, ranges, marks, bit_positions()])
    found = [entries[int(begin) : int(end)].tolist() for begin, end in ranges]
    return found == [np.flatnonzero(row).tolist() for row in bits]


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_all_parts_are_done(helpers: int) -> None:
    with Crew(helpers) as crew:
        for turn in range(200):
            assert listed(crew, turn, parts=1 + turn % 7)


def test_helpers_come_back_from_a_rest_and_from_boredom() -> None:
    with Crew(2) as crew:
        for turn in range(20):
            crew.rest()
            assert listed(crew, turn, parts=3)
        time.sleep(0.05)  # longer than their patience
        assert listed(crew, 99, parts=3)


def test_no_thread_is_left_behind_even_by_an_error() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="no number"), Crew(2) as crew:
        done(crew, plain_list, 3, (ROWS, "no number"))  # type: ignore[arg-type]
    assert threading.active_count() == before


def test_a_crew_rests_and_is_hired_again_unless_something_went_wrong() -> None:
    with hired(2) as crew:
        assert listed(crew, 1, parts=3)
    before = threading.active_count()
    with hired(2) as again, hired(2) as another:
        assert again is crew
        assert another is not crew
        assert listed(again, 2, parts=3)
        assert listed(another, 3, parts=3)
    assert threading.active_count() == before + 2
    with pytest.raises(ValueError, match="no number"), hired(2) as lost:
        done(lost, plain_list, 3, (ROWS, "no number"))  # type: ignore[arg-type]
    assert threading.active_count() == before


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_process_has_crews_of_its_own() -> None:
    """Threads stay behind at a fork: whoever waited for them there would wait for ever."""
    with hired(1) as crew:
        assert listed(crew, 1, parts=2)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # or a child that waits for ever would be waited for
        try:
            with hired(1) as own:
                os._exit(0 if listed(own, 2, parts=2) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


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
            done(crew, _bad, parts)
        assert listed(crew, 5, parts)


@compiled
def _stops(board: int, part: int) -> int:
    n = read(board)[1]
    n[0] += 1
    if n[0] == 2:
        stop(board, 7)
    return DONE


@pytest.mark.parametrize("helpers", [0, 1])
def test_a_job_that_stops_says_why_and_where_it_goes_on(helpers: int) -> None:
    boards = new_boards(3)
    for number, board in enumerate(boards):
        write(board, code_of(_stops), 1, (number,), ())
    with Crew(helpers) as crew:
        assert crew.follow(boards) == (1, 7)
        assert boards[:, FIRST_NUMBER].tolist() == [1, 2, 2], "the third has not begun"
        assert crew.follow(boards, 2) == (3, 0)
        assert boards[:, FIRST_NUMBER].tolist() == [1, 2, 3]


def test_helpers_sleep_while_there_is_nothing_to_share() -> None:
    with Crew(1) as crew:
        assert listed(crew, 1, parts=2)
        crew.rest()
        assert listed(crew, 2, parts=1)
        assert not crew._awake.is_set()
        assert listed(crew, 3, parts=2)


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
