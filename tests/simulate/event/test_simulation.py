"""What the event engine does beyond being equal: threads, choices, memory, real weights."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest
import torch
from random_graphs import random_images, random_net
from torch import nn

from builders import tiny_conversion
from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import MaxNorm
from ratenorm.graph.net import SpikingNet
from ratenorm.simulate.event import costs
from ratenorm.simulate.event.simulation import EventSimulation
from ratenorm.simulate.simulate import EngineName, simulate, start, stream


def real_net(seed: int = 0) -> tuple[SpikingNet, torch.Tensor]:
    """Two blocks of channels, a pool, a linear layer; weights that are not dyadic."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 40, 3, padding=1), nn.ReLU(), nn.Conv2d(40, 36, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(36, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5),
    ).eval()  # fmt: skip
    x = torch.rand(9, 3, 10, 10)
    return convert(model, MaxNorm(), example=x[:1], calibration=x).net, x


@pytest.mark.parametrize("images", [1, 2, 9])
@pytest.mark.usefixtures("_two_threads")
def test_threads_change_nothing(images: int) -> None:
    net, x = real_net()
    simulation = EventSimulation(net, x[:images])
    assert simulation.threads == 2
    simulation.advance(40)
    torch.set_num_threads(1)
    alone = EventSimulation(net, x[:images])
    alone.advance(40)
    a, b = simulation.result(), alone.result()
    assert torch.equal(a.logits, b.logits)
    assert all(torch.equal(p.counts, q.counts) for p, q in zip(a.layers, b.layers, strict=True))


def test_real_weights_give_the_same_counts() -> None:
    net, x = real_net()
    dense, event = simulate(net, x, 64, engine="dense"), simulate(net, x, 64, engine="event")
    spikes = sum(float(layer.counts.sum()) for layer in dense.layers)
    wrong = sum(float((a.counts - b.counts).abs().sum()) for a, b in zip(dense.layers, event.layers, strict=True))
    assert spikes > 1e4
    assert wrong <= spikes * 1e-5
    torch.testing.assert_close(
        event.logits[-1], dense.logits[-1], rtol=1e-3, atol=1e-3 * float(dense.logits.abs().max())
    )


def test_auto_convolves_where_spikes_are_many_and_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "ENTRY", 1e9)
    net, x = real_net()
    events = EventSimulation(net, x, choose=False)
    events.advance(4)
    assert set(events.choices.values()) == {0.0}
    dense = EventSimulation(net, x)
    dense.advance(4)
    assert [share for share in dense.choices.values() if share] == [1.0] * 3  # all but the first population
    assert dense.result().engine == "auto"
    assert events.result().engine == "event"


def test_steps_may_be_taken_in_any_portions() -> None:
    net = random_net(3)
    x = random_images(net, 2, 3)
    whole = simulate(net, x, 45, engine="event")
    parts = EventSimulation(net, x, choose=False)
    for steps in (1, 33, 2, 9):
        parts.advance(steps)
    assert torch.equal(parts.result().logits, whole.logits)
    assert torch.equal(parts.result().layers[0].counts, whole.layers[0].counts)
    assert torch.equal(torch.stack(list(stream(net, x, 45, engine="event"))), whole.logits)


@pytest.mark.parametrize("engine", ["dense", "event"])
def test_images_so_bright_that_their_sum_is_infinite_are_not_refused(engine: EngineName) -> None:
    net, x = real_net()
    x[:] = 0.0
    x[:, 0, :2] = 3e38
    assert torch.isinf(x.sum())
    assert simulate(net, x, 2, engine=engine).logits.shape[0] == 2


def test_lists_grow_where_every_neuron_spikes() -> None:
    net, x = real_net()
    simulate(net, x * 0.01, 5, engine="event")
    assert torch.equal(
        simulate(net, x * 100, 5, engine="event").logits, simulate(net, x * 100, 5, engine="event").logits
    )
    dense, event = simulate(net, x * 100, 5, engine="dense"), simulate(net, x * 100, 5, engine="event")
    assert torch.equal(dense.layers[0].counts, event.layers[0].counts)


MEMORY = """
import resource, sys, torch
sys.path[:0] = {paths!r}
torch.set_num_threads(1)
from test_simulation import real_net
from ratenorm.simulate.simulate import simulate
net, x = real_net()
x = x.repeat(8, 1, 1, 1)
simulate(net, x, 40, engine="event")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
simulate(net, x, 640, engine="event")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / before)
"""


def test_memory_does_not_grow_with_the_steps() -> None:
    program = MEMORY.format(paths=[p for p in sys.path if p])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.05


def test_a_tiny_network_of_the_paper_runs() -> None:
    conversion, x = tiny_conversion(v0=0.5)
    result = simulate(conversion.net, x, 16)
    assert result.engine == "auto"
    assert "on the auto engine" in str(result)


def test_a_simulation_goes_with_its_last_reference() -> None:
    """No circle of references holds its arrays until a full collection."""
    conversion, x = tiny_conversion()
    simulation = EventSimulation(conversion.net, x, fit=True)
    gone = weakref.finalize(simulation.groups[0], lambda: None)
    simulation.advance(3)
    gc.disable()
    try:
        del simulation
        assert not gone.alive
    finally:
        gc.enable()


@pytest.mark.parametrize("engine", ["dense", "event"])
def test_a_result_stays_what_it_was_when_the_simulation_goes_on(engine: EngineName) -> None:
    net = random_net(5)
    x = random_images(net, 3, 5)
    going = start(net, x, engine)
    going.advance(4)
    result, expected = going.result(), simulate(net, x, 4, engine="dense")
    going.advance(5)
    for early, late, then in zip(result.layers, going.result().layers, expected.layers, strict=True):
        assert torch.equal(early.counts, then.counts)
        assert torch.equal(early.potential, then.potential)
        assert float(late.counts.sum()) >= float(early.counts.sum())


@pytest.mark.parametrize("engine", ["dense", "event"])
def test_what_was_given_out_is_the_caller_s_to_change(engine: EngineName) -> None:
    net = random_net(5)
    x = random_images(net, 1, 5)
    going, expected = start(net, x, engine), simulate(net, x, 9, engine=engine)
    going.advance(4).zero_()
    going.result().logits.zero_()
    for layer in going.result().layers:
        layer.counts.zero_()
        layer.potential.zero_()
        layer.spikes.zero_()
    going.advance(5)
    result = going.result()
    assert torch.equal(result.logits, expected.logits)
    for ours, theirs in zip(result.layers, expected.layers, strict=True):
        assert torch.equal(ours.counts, theirs.counts)
        assert torch.equal(ours.spikes, theirs.spikes)


def test_before_its_first_step_a_simulation_has_no_spikes_and_its_start_potentials() -> None:
    net = random_net(5)
    going = EventSimulation(net, random_images(net, 2, 5))
    [group] = going.groups
    for k, stage in enumerate(group.settings.plan.stages):
        if not stage.fires:
            continue
        shape = net.shapes[stage.name]
        potential = torch.from_numpy(group.state.snapshot().potential(k)).view(-1, *shape)
        assert not group.state.snapshot().counts(k).any()
        assert torch.equal(potential, stage.node.op.start.expand_as(potential))
    going.keep([1])
    going.advance(3)
    assert torch.equal(going.result().logits, simulate(net, random_images(net, 2, 5)[1:], 3, engine="event").logits)
