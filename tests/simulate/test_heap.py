"""Freed memory goes back to the system, where the C library can be asked to."""

from __future__ import annotations

import ctypes

import pytest

from ratenorm.simulate import heap
from ratenorm.simulate.heap import _trim


@pytest.fixture(autouse=True)
def _forget() -> None:
    _trim.cache_clear()


def test_memory_is_handed_back_by_glibc() -> None:
    assert heap.give_back() == hasattr(ctypes.CDLL(None), "malloc_trim")


def test_all_unused_memory_is_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """`malloc_trim` is told how much to keep: nothing."""
    kept = []
    monkeypatch.setattr(heap, "_trim", lambda: kept.append)
    assert heap.give_back()
    assert kept == [0]


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not heap.give_back()
    monkeypatch.undo()
    heap._trim.cache_clear()
