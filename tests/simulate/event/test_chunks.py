"""Memory that chunks share: right after whatever went before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from random_graphs import random_images, random_net

from builders import chain, dyadic, fire
from ratenorm.core.coding import Coding, Constant, Poisson
from ratenorm.errors import SimulationError
from ratenorm.graph.net import INPUT, Node, SpikingNet
from ratenorm.graph.ops import Add, Conv, Input
from ratenorm.simulate.event import costs, group
from ratenorm.simulate.event.simulation import EventSimulation
from ratenorm.simulate.simulate import simulate, start


@pytest.fixture
def _convolution_from_a_hundred_spikes(monkeypatch: pytest.MonkeyPatch) -> None:
    for cost, value in (("UNPACK", 0.0), ("MULTIPLY_ADD", 0.0), ("REORDER", 1.0), ("ENTRY", 1.4)):
        monkeypatch.setattr(costs, cost, value)


def bright_and_dark() -> tuple[SpikingNet, torch.Tensor, torch.Tensor]:
    """A network, an image for which a convolution pays, and one for which it does not."""
    wide = 17  # a channel more than is looked up
    conv = Conv(torch.ones(wide, wide, 3, 3), None, (1, 1), (1, 1, 1, 1))
    net = chain((wide, 6, 6), ("first", fire()), ("conv", conv), ("second", fire()))
    dark = torch.zeros(1, wide, 6, 6)
    dark[:, :, 2, 2] = 1.0
    return net, torch.ones(1, wide, 6, 6), dark


def assert_right(going: EventSimulation, net: SpikingNet, x: torch.Tensor) -> None:
    steps = going.groups[0].step
    for ours, theirs in zip(going.result().layers, simulate(net, x, steps, engine="dense").layers, strict=True):
        assert torch.equal(ours.counts, theirs.counts)
        assert torch.equal(ours.potential, theirs.potential)


@pytest.mark.usefixtures("_convolution_from_a_hundred_spikes")
def test_a_chunk_by_convolution_leaves_nothing_to_the_next_one_by_events() -> None:
    net, bright, dark = bright_and_dark()
    for x, by_convolution in ((bright, 1.0), (dark, 0.0), (bright, 1.0), (dark, 0.0)):
        going = EventSimulation(net, x)
        going.advance(5)
        assert going.choices["second"] == by_convolution
        assert_right(going, net, x)


@pytest.mark.usefixtures("_convolution_from_a_hundred_spikes")
def test_an_interrupt_in_the_middle_leaves_nothing_to_the_next_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    net, bright, dark = bright_and_dark()
    EventSimulation(net, bright).advance(5)  # so that there is a chunk to be used again

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt  # as Python does when the core comes back

    stopped = EventSimulation(net, bright)
    with monkeypatch.context() as patch:
        patch.setattr(group.Group, "_note", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stopped.advance(5)
    with pytest.raises(SimulationError, match="interrupted after step 0"):
        stopped.advance(5)
    going = EventSimulation(net, dark)
    going.advance(5)
    assert_right(going, net, dark)


@pytest.mark.parametrize("coding", [Constant(), Poisson()])
def test_a_network_without_neurons_is_a_network(coding: Coding) -> None:
    net = chain((3, 4, 4), ("conv", Conv(dyadic(1, 2, 3, 3, 3), None, (1, 1), (1, 1, 1, 1))))
    x = torch.rand(2, 3, 4, 4)
    event, dense = (simulate(net, x, 5, engine=engine, coding=coding) for engine in ("event", "dense"))
    torch.testing.assert_close(event.logits, dense.logits)


@pytest.mark.parametrize("engine", ["event", "auto"])
def test_what_is_added_to_itself_counts_twice(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "ENTRY", 1e9)  # auto convolves
    conv = Conv(dyadic(1, 4, 4, 3, 3), None, (1, 1), (1, 1, 1, 1))
    nodes = (Node(INPUT, Input()), Node("first", fire(), (INPUT,)), Node("conv", conv, ("first",)))
    net = SpikingNet(
        (*nodes, Node("sum", Add(), ("conv", "conv")), Node("second", fire(2.0), ("sum",))), "second", (4, 5, 5)
    )
    x = dyadic(2, 1, 4, 5, 5, low=0)
    going = start(net, x, engine)
    assert isinstance(going, EventSimulation)
    going.advance(9)
    assert going.choices["second"] == (engine == "auto")
    assert_right(going, net, x)


@pytest.mark.parametrize("engine", ["event", "dense"])
def test_some_images_may_go_before_the_first_step(engine: Any) -> None:
    net = random_net(3)
    x = random_images(net, 4, 3)
    going = start(net, x, engine, fit=True, first_spikes=True)
    going.keep([1, 3])
    going.advance(6)
    whole = simulate(net, x[[1, 3]], 6, engine=engine, fit=True, first_spikes=True)
    for ours, theirs in zip(going.result().layers, whole.layers, strict=True):
        assert ours.first_spike is not None
        assert theirs.first_spike is not None
        assert torch.equal(ours.first_spike, theirs.first_spike)
        assert ours.fit is not None
        assert theirs.fit is not None
        torch.testing.assert_close(ours.fit.error, theirs.fit.error)


@pytest.mark.usefixtures("_two_threads")
def test_a_group_that_is_left_alone_gets_all_threads() -> None:
    net = random_net(3)
    x = random_images(net, 4, 3)
    going = EventSimulation(net, x)
    going.advance(4)
    going.keep([0])
    logits = going.advance(4)
    assert {size for size, _ in going.groups[0].settings.plan._chunks} == {(2, 4, 1), (1, 4, 2)}
    assert torch.equal(logits, simulate(net, x[:1], 8, engine="event").logits[4:])


def test_a_plan_keeps_few_chunks_and_uses_them_again() -> None:
    net = random_net(5)
    x = random_images(net, 1, 5)
    whole = simulate(net, x, 30, engine="event").logits
    for steps in (4, 3, 4, *range(1, 30)):
        assert torch.equal(simulate(net, x, steps, engine="event").logits, whole[:steps])
    made = EventSimulation(net, x).groups[0].settings.plan
    kept = made.chunks()
    assert 1 < len(kept) <= 8
    assert made.take_chunk(1, 29, torch.get_num_threads()) is kept[-1]
