"""Weights in 16 bits: the same numbers, and sums that never overflow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import chain, fire
from ratenorm.convert.grid import gridded
from ratenorm.graph.net import SpikingNet
from ratenorm.graph.ops import AvgPool, Conv
from ratenorm.simulate.event import costs
from ratenorm.simulate.event.plan import plan, stage_tables
from ratenorm.simulate.event.short import LARGEST, as_short
from ratenorm.simulate.event.simulation import EventSimulation
from ratenorm.simulate.event.tables import RouteTable
from ratenorm.simulate.simulate import simulate, start


def convolution(weight: torch.Tensor, pooled: bool) -> SpikingNet:
    channels, size = weight.shape[1], 8 if pooled else 4
    conv = Conv(weight, None, (1, 1), (1, 1, 1, 1))
    pool = [("pool", AvgPool((2, 2), (2, 2), (0, 0)))] if pooled else []
    return chain((channels, size, size), ("first", fire()), *pool, ("conv", conv), ("second", fire()))


def route(net: SpikingNet) -> RouteTable:
    [found] = stage_tables(net, True)[1].routes
    return found


@given(st.integers(0, 10**6), st.integers(1, 40), st.booleans(), st.floats(-20, 20))
@settings(max_examples=40)
def test_sixteen_bits_hold_every_weight_and_every_sum(seed: int, channels: int, pooled: bool, size: float) -> None:
    """The grid of a conversion leaves room for 16 of them, each as often as a window can spike."""
    generator = torch.Generator().manual_seed(seed)
    weight = 2**size * torch.randn(33, channels, 3, 3, generator=generator).pow(3)  # with outliers
    net = gridded(convolution(weight, pooled), 16)
    stage = plan(net, True).stages[1]
    [listed] = stage.listed
    lanes = torch.nn.functional.pad(listed.weight, (0, 31)).view(channels, 9, 2, 32).permute(2, 0, 1, 3)
    short = as_short(lanes, listed)
    assert short is not None
    assert short.most == 16
    in_turn = short.weights.reshape(2, listed.digits, channels, 9, 16, 2)  # lanes of the two halves
    rows = in_turn.swapaxes(-1, -2).reshape(2, listed.digits, channels, 9, 32).astype(np.int64)
    for digit in range(listed.digits):
        assert np.array_equal(
            rows[:, digit] * short.units.reshape(2, 1, 1, 32), lanes.numpy() * listed.share * 2.0**digit
        )
    largest = -np.sort(-np.abs(rows[:, 0]), axis=1)[:, :16].sum(1)
    assert largest.max() * (4 if pooled else 1) <= LARGEST


@pytest.mark.parametrize("pooled", [False, True])
def test_the_largest_sums_are_right(pooled: bool) -> None:
    """All neurons spike in every step and all weights have one sign: the sums that would overflow first."""
    weight = torch.rand(20, 40, 3, 3, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.5
    net = gridded(convolution(weight, pooled), 16)
    assert route(net).most == 16
    x = torch.full((1, *net.input_shape), 3.0)
    event, dense = (simulate(net, x, 5, engine=engine) for engine in ("event", "dense"))
    assert torch.equal(event.layers[1].potential, dense.layers[1].potential)
    assert float(dense.layers[1].potential.max()) > 100


def test_weights_that_do_not_fit_stay_in_float32() -> None:
    """17 bits: their sums are exact in float32 all the same."""
    weight = torch.randint(-(2**16), 2**16, (20, 6, 3, 3), generator=torch.Generator().manual_seed(0)) * 2.0**-16
    for pooled in (False, True):
        net = convolution(weight, pooled)
        assert route(net).most == 0
        x = torch.rand(2, *net.input_shape, generator=torch.Generator().manual_seed(1))
        event, dense = (simulate(net, x, 20, engine=engine) for engine in ("event", "dense"))
        assert float(dense.layers[1].counts.sum()) > 0
        assert torch.equal(event.layers[1].potential, dense.layers[1].potential)


def test_less_room_means_fewer_spikes_at_a_time() -> None:
    """All weights alike: as many as fit can be added, and one too large leaves no room at all."""
    for whole, most in ((LARGEST // 16, 16), (LARGEST // 8, 8), (LARGEST // 4, 4), (LARGEST, 0)):
        weight = torch.full((20, 20, 3, 3), float(whole))
        weight[0, 0, 0, 0] = 1.0  # or the unit would be larger
        assert route(convolution(weight, False)).most == most


def together(event: EventSimulation) -> int:
    """How many were added together for the second population, in the last chunk."""
    return event.groups[0].settings.plan.chunks()[-1].choice(1)[1]


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("images", [1, 3])
def test_steps_added_together_are_those_added_one_by_one(pooled: bool, images: int) -> None:
    """Where the weights of a block exceed the first-level cache, several steps are added before any neuron fires."""
    generator = torch.Generator().manual_seed(0)
    net = gridded(convolution(torch.randn(40, 80, 3, 3, generator=generator) * 0.2, pooled), 16)
    x = torch.rand(images, *net.input_shape, generator=generator) ** 2
    event, dense = (start(net, x, engine) for engine in ("event", "dense"))
    for steps, last in ((1, 1), (7, 7), (9, 9), (32, 32), (33, 1), (3, 3)):  # not whole numbers of groups
        for simulation in (event, dense):
            simulation.advance(steps)
        assert together(event) == last
        for ours, theirs in zip(event.result().layers, dense.result().layers, strict=True):
            assert torch.equal(ours.counts, theirs.counts)
            assert torch.equal(ours.potential, theirs.potential)
            assert torch.equal(ours.spikes, theirs.spikes)


@pytest.mark.parametrize("convolved", [False, True])
def test_few_spikes_and_convolutions_go_step_by_step(convolved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the tables would allow to take several steps together."""
    if convolved:
        monkeypatch.setattr(costs, "ENTRY", 1e9)
    generator = torch.Generator().manual_seed(0)
    net = gridded(convolution(torch.randn(40, 80, 3, 3, generator=generator), False), 16)
    assert stage_tables(net, True)[1].together > 1
    x = torch.rand(2, *net.input_shape, generator=generator) * (1.0 if convolved else 0.04)
    event, dense = start(net, x, "auto"), start(net, x, "dense")
    for simulation in (event, dense):
        simulation.advance(32)
    assert event.choices["second"] == convolved
    assert together(event) == 1
    assert event.result().layers[1].counts.any()
    for ours, theirs in zip(event.result().layers, dense.result().layers, strict=True):
        assert torch.equal(ours.counts, theirs.counts)


def test_lanes_of_zeros_are_no_obstacle() -> None:
    weight = torch.zeros(20, 6, 3, 3)
    assert route(convolution(weight, False)).most == 16
