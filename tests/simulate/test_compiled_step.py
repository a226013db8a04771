"""The compiled step of the dense engine gives what the plain one gives, and its failure costs nothing but time."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from builders import chain, fire, tiny_conversion
from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import MaxNorm
from ratenorm.core.coding import Coding, Constant, Poisson
from ratenorm.graph.net import SpikingNet
from ratenorm.graph.ops import MaxPool
from ratenorm.simulate import compiled_step as module
from ratenorm.simulate.compiled_step import compiled_step, wanted
from ratenorm.simulate.dense import DenseSimulation
from ratenorm.simulate.simulate import simulate


def pooled() -> tuple[SpikingNet, Tensor]:
    pool = MaxPool((2, 2), (2, 2), (0, 0), (1, 1), False)
    return chain((3, 6, 6), ("fire", fire(1.0)), ("pool", pool)), torch.rand(4, 3, 6, 6)


def converted() -> tuple[SpikingNet, Tensor]:
    conversion, x = tiny_conversion(v0=0.5)
    return conversion.net, x


def test_a_gpu_compiles_unasked_and_a_cpu_does_not() -> None:
    assert wanted(torch.device("cuda"), None)
    assert not wanted(torch.device("cpu"), None)
    assert wanted(torch.device("cpu"), True)
    assert not wanted(torch.device("cuda"), False)


@pytest.mark.parametrize("coding", [Constant(), Poisson(seed=3)], ids=["constant", "poisson"])
@pytest.mark.parametrize("make", [converted, pooled])
def test_a_compiled_step_equals_the_plain_one(make: Callable[[], tuple[SpikingNet, Tensor]], coding: Coding) -> None:
    """Bit for bit, for chunks of one and of several steps, with fit and first spikes, and after images have left."""
    net, x = make()
    plain = DenseSimulation(net, x, coding, fit=True, first_spikes=True)
    made = DenseSimulation(net, x, coding, fit=True, first_spikes=True)
    made._step = compiled_step(DenseSimulation._chunk, "aot_eager")
    for steps in (1, 1, 3):
        assert torch.equal(plain.advance(steps), made.advance(steps))
    for simulation in (plain, made):
        simulation.keep([0, 2])
    assert torch.equal(plain.advance(2), made.advance(2))
    for name, a in plain.populations.items():
        b = made.populations[name]
        assert torch.equal(a.counts, b.counts)
        assert torch.equal(a.potential, b.potential)
        assert torch.equal(a.first_spike, b.first_spike)
        for ours, theirs in ((a.spikes, b.spikes), (a.synaptic_ops, b.synaptic_ops), (a.error, b.error)):
            assert torch.equal(ours.all(), theirs.all())


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler on the CPU")
def test_real_compilation_gives_the_same_answers() -> None:
    x = torch.rand(4, 6, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    net = convert(model, MaxNorm(), example=x[:1], calibration=x).net
    plain, made = (simulate(net, x, 6, engine="dense", compiled=choice) for choice in (False, True))
    assert torch.allclose(plain.logits, made.logits, rtol=1e-6)
    assert torch.equal(plain.layers[0].counts, made.layers[0].counts)


def test_without_a_compiler_the_plain_step_runs_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise torch._dynamo.exc.BackendCompilerFailed(lambda: None, RuntimeError("no compiler"), None)

    monkeypatch.setattr(module, "_compiled", lambda plain, backend: refuse)
    module._say_once.cache_clear()
    net, x = converted()
    with pytest.warns(RuntimeWarning, match=r"torch.compile does not work here.*the same results.*compiled=False"):
        made = simulate(net, x, 3, engine="dense", compiled=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(made.logits, simulate(net, x, 3, engine="dense", compiled=True).logits)
    assert torch.equal(made.logits, simulate(net, x, 3, engine="dense").logits)


def test_an_error_of_the_step_itself_is_not_hidden() -> None:
    def broken(*_: object) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        compiled_step(broken, "eager")()


def test_what_failed_once_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed compilation takes seconds: a simulation of T steps may pay them once, not T times."""
    tries = []

    def refuse(*_: object) -> None:
        tries.append(1)
        raise torch._dynamo.exc.BackendCompilerFailed(lambda: None, RuntimeError("no compiler"), None)

    monkeypatch.setattr(module, "_compiled", lambda plain, backend: refuse)
    monkeypatch.setattr(module, "_say_once", lambda *_: None)
    step = compiled_step(lambda x: 2 * x)
    assert [step(x) for x in (1, 2, 3)] == [2, 4, 6]
    assert len(tries) == 1
