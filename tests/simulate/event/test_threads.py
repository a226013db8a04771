"""Threads: any number gives the same answers, several simulations may run at once, and a forked child has its own."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from random_graphs import random_images, random_net

from ratenorm.simulate.event.simulation import EventSimulation
from ratenorm.simulate.simulate import simulate


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("images", [1, 5])
def test_the_number_of_threads_changes_nothing(threads: int, images: int) -> None:
    """One image: all threads share each layer. Several: a thread for each group. Torch gets its threads back."""
    before = torch.get_num_threads()
    for seed in range(3, 9):
        net = random_net(seed)
        x = random_images(net, images, seed)
        expected = EventSimulation(net, x).advance(40)
        torch.set_num_threads(threads)
        try:
            assert torch.equal(EventSimulation(net, x).advance(40), expected)
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_simulations_in_several_threads_at_once() -> None:
    """Of one network and of different ones, each with threads of its own."""
    nets = [random_net(seed) for seed in (3, 5, 7)]
    jobs = [(net, random_images(net, images, images), steps) for net in nets for images in (1, 3) for steps in (5, 40)]
    expected = [simulate(*job, engine="event").logits for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda job: simulate(*job, engine="event").logits, jobs))
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_process_has_threads_of_its_own() -> None:
    """Threads stay with the parent at a fork: whoever waited for them there would wait for ever."""
    net = random_net(3)
    x = random_images(net, 1, 3)
    expected = simulate(net, x, 40, engine="event").logits
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that waits for ever would be waited for
        try:
            os._exit(0 if torch.equal(simulate(net, x, 40, engine="event").logits, expected) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
