"""The estimate of memory before a simulation starts."""

from __future__ import annotations

import pytest
import torch

from builders import tiny_conversion
from ratenorm.errors import SimulationError
from ratenorm.simulate import memory, simulate
from ratenorm.simulate.memory import Memory, available_memory, check_memory, estimate_memory


def test_only_the_answers_grow_with_the_steps() -> None:
    net = tiny_conversion()[0].net
    short, long = estimate_memory(net, 4, 64), estimate_memory(net, 4, 1024)
    assert (short.state, short.work) == (long.state, long.work)
    assert long.answers == 16 * short.answers
    assert short.state == sum(net.neurons.values()) * 4 * 4 * 4
    assert estimate_memory(net, 8, 64).total == 2 * short.total
    assert estimate_memory(net, 4, 64, chunk=5).work == 5 * short.work
    assert estimate_memory(net, 4, 64, fit=True, first_spikes=True).state == 2 * short.state


def test_a_batch_that_cannot_fit_is_refused_with_one_that_can() -> None:
    need = Memory(600 << 20, 300 << 20, 100 << 20)
    check_memory(need, 1000, None)
    check_memory(need, 1000, 1000 << 20)
    with pytest.raises(
        SimulationError, match=r"takes about 1000 MB \(state 600 MB, work 300 MB, answers 100 MB\), and 250"
    ):
        check_memory(need, 1000, 250 << 20)
    with pytest.raises(SimulationError, match="about 250 images at a time"):
        check_memory(need, 1000, 250 << 20)


def test_simulate_asks_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    conversion, x = tiny_conversion()
    monkeypatch.setattr(simulate, "available_memory", lambda: 1000)
    simulate.simulate(conversion.net, x, 4)  # so little that nobody is asked
    monkeypatch.setattr(simulate, "UNASKED", 0)
    with pytest.raises(SimulationError, match="Simulating 12 images: this takes about"):
        simulate.simulate(conversion.net, x, 4)
    monkeypatch.undo()
    assert torch.isfinite(simulate.simulate(conversion.net, x, 4).logits).all()


def test_the_system_says_what_is_free_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    free = available_memory()
    assert free is None or free > 1 << 20

    def refuse(*args: object, **options: object) -> object:
        raise OSError

    monkeypatch.setattr(memory, "open", refuse, raising=False)
    monkeypatch.setattr(memory.os, "sysconf", refuse)
    assert available_memory() is None
