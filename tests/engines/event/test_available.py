"""Where the event engine cannot run: a clear message and the dense engine, never a crash."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

from builders import tiny_conversion
from ratenorm.engines.event import available
from ratenorm.errors import DataError, SimulationError
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
def test_without_numba_the_dense_engine_runs_and_says_so_once(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    def refuse() -> None:
        raise ImportError("No module named 'numba'")

    monkeypatch.setattr(available, "load", refuse)
    conversion, x = tiny_conversion()
    with pytest.warns(RuntimeWarning, match=r"No module named 'numba'.*dense engine runs instead"):
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


def test_without_a_place_for_its_cache_auto_takes_the_dense_engine_and_event_compiles_each_time() -> None:
    """numba raises at decoration where it finds no directory to write to."""
    program = (
        "import sys, warnings; sys.path.insert(0, 'tests')\n"
        "import numba.core.caching as caching\n"
        "def none(*a, **k): raise RuntimeError('cannot cache function: no locator available')\n"
        "caching.FunctionCache.__init__ = none\n"
        "from builders import tiny_conversion\n"
        "from ratenorm.simulate.simulate import simulate, start\n"
        "conversion, x = tiny_conversion()\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n"
        "    print(simulate(conversion.net, x, 2).engine, simulate(conversion.net, x, 2).engine)\n"
        "print(len(said), said[0].message)\n"
        "print(type(start(conversion.net, x, 'event')).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert lines[0] == "dense dense", done.stderr
    assert lines[1].startswith("1 The event engine is not available: there is no folder to keep its compiled code in")
    assert "Set NUMBA_CACHE_DIR to a folder that can be written, or ask for engine='event'" in lines[1]
    assert lines[2] == "EventSimulation"


@pytest.mark.parametrize("method", ["load_overload", "save_overload"])
def test_a_cache_that_breaks_later_costs_a_compilation_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    import numba.core.caching as caching

    from ratenorm.engines.event.compiled import compiled

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.Cache, "load_overload", lambda *_: None)  # whatever an earlier run has left
    monkeypatch.setattr(caching.Cache, "save_overload", lambda *_: None)
    monkeypatch.setattr(caching.Cache, method, broken)

    @compiled
    def twice(a: int) -> int:
        return 2 * a

    with pytest.warns(RuntimeWarning, match=r"No space left on device.*compiled anew next time.*NUMBA_CACHE_DIR"):
        assert twice(21) == 42
