"""Where the event engine cannot run: a clear message and the dense engine, never a crash."""

from __future__ import annotations

import multiprocessing
import warnings
from types import SimpleNamespace

import pytest
import torch

from builders import tiny_conversion
from ratenorm.errors import DataError, SimulationError
from ratenorm.simulate.event import available
from ratenorm.simulate.simulate import simulate


@pytest.fixture
def _forget() -> object:
    """Let the question be asked anew, and again after the test."""
    available.missing.cache_clear()
    available.warn_once.cache_clear()
    yield
    available.missing.cache_clear()
    available.warn_once.cache_clear()


@pytest.mark.usefixtures("_forget")
@pytest.mark.parametrize("engine", ["auto", "event"])
def test_without_its_core_the_dense_engine_runs_and_says_so_once(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    def refuse() -> None:
        raise ImportError("No module named 'ratenorm.simulate.event._core'")

    monkeypatch.setattr(available, "load", refuse)
    conversion, x = tiny_conversion()
    with pytest.warns(RuntimeWarning, match=r"core is not installed.*dense engine runs instead.*C\+\+20 compiler"):
        result = simulate(conversion.net, x, 3, engine=engine)
    assert result.engine == "dense"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert simulate(conversion.net, x, 3, engine=engine).engine == "dense"


def test_double_precision_goes_to_the_dense_engine_or_is_refused() -> None:
    conversion, x = tiny_conversion()
    net = conversion.net.to(torch.float64)
    assert simulate(net, x.double(), 3).engine == "dense"
    with pytest.raises(SimulationError, match=r"of float64, and the event engine computes in float32.*engine='auto'"):
        simulate(net, x.double(), 3, engine="event")
    widened = simulate(conversion.net, x.double(), 3, engine="event")  # images are brought to the network's own type
    assert torch.equal(widened.logits, simulate(conversion.net, x, 3, engine="event").logits)


def test_another_device_is_refused() -> None:
    elsewhere = SimpleNamespace(device=torch.device("cuda:0"), nodes=())
    reason = available.unfit(elsewhere, torch.zeros(1))
    assert reason is not None
    assert "on cuda:0, and the event engine runs on the CPU" in reason


@pytest.mark.parametrize("engine", ["dense", "event", "auto"])
def test_a_batch_without_images_is_refused(engine: str) -> None:
    conversion, x = tiny_conversion()
    with pytest.raises(DataError, match="no image in the batch"):
        simulate(conversion.net, x[:0], 3, engine=engine)


def _in_a_child(net: object, x: torch.Tensor, queue: object) -> None:
    queue.put(simulate(net, x, 4, engine="event").logits.numpy())


def test_a_forked_child_runs_the_event_engine() -> None:
    conversion, x = tiny_conversion()
    expected = simulate(conversion.net, x, 4, engine="event").logits
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of forking with threads
        child = context.Process(target=_in_a_child, args=(conversion.net, x, queue))
        child.start()
    found = queue.get(timeout=60)
    child.join(timeout=60)
    assert child.exitcode == 0
    assert torch.equal(torch.from_numpy(found), expected)


def test_kinds_of_numbers_are_named_in_order() -> None:
    """Whatever the order in which a set holds them."""
    conversion, x = tiny_conversion()
    kinds = {torch.bfloat16: "bfloat16, float32", torch.float16: "float16, float32", torch.float64: "float32, float64"}
    for kind, named in kinds.items():
        assert f"are of {named}, and" in str(available.unfit(conversion.net, x.to(kind)))
