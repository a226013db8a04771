"""The event engine gives what the dense engine gives: bit for bit where sums are exact."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_images, random_net

from builders import chain, dyadic, fire
from ratenorm.core.coding import Coding, Constant, Poisson
from ratenorm.graph.net import INPUT, Node, SpikingNet
from ratenorm.graph.ops import Add, AvgPool, Concat, Conv, Input, Linear, Reshape
from ratenorm.simulate.dense import DenseSimulation
from ratenorm.simulate.event import _core, plan
from ratenorm.simulate.event.simulation import EventSimulation
from ratenorm.simulate.result import SimResult
from ratenorm.simulate.simulate import simulate


def assert_same(dense: SimResult, event: SimResult) -> None:
    assert torch.equal(dense.logits, event.logits)
    assert [name for name, _ in dense.relays] == [name for name, _ in event.relays]
    for (_, a), (_, b) in zip(dense.relays, event.relays, strict=True):
        assert torch.equal(a, b)
    for a, b in zip(dense.layers, event.layers, strict=True):
        assert (a.name, a.neurons) == (b.name, b.neurons)
        for part in ("counts", "spikes", "synaptic_ops", "potential", "first_spike"):
            ours, theirs = getattr(b, part), getattr(a, part)
            assert ours.dtype == theirs.dtype, part
            assert torch.equal(ours, theirs), part
        assert a.fit is not None
        assert b.fit is not None
        torch.testing.assert_close(a.fit.error, b.fit.error, rtol=1e-5, atol=1e-6)
        assert (a.fit.total, a.fit.power) == pytest.approx((b.fit.total, b.fit.power), rel=1e-12)


SETS = _core.instruction_sets()


def on(instruction_set: str) -> object:
    """A block of code in which the core uses an instruction set."""
    return patch.dict(os.environ, {plan.INSTRUCTION_SET: instruction_set})


def compare(net: SpikingNet, images: int, steps: int, coding: Coding, engine: str, seed: int) -> None:
    x = random_images(net, images, seed)
    options = {"coding": coding, "fit": True, "first_spikes": True, "first_image": seed % 7}
    dense = simulate(net, x, steps, engine="dense", chunk=steps, **options)
    assert_same(dense, simulate(net, x, steps, engine=engine, **options))


@given(
    seed=st.integers(0, 10**6),
    images=st.integers(1, 5),
    steps=st.integers(1, 40),
    coding=st.sampled_from((Constant(), Constant(), Poisson(amplitude=2.0, seed=3))),
    engine=st.sampled_from(("event", "event", "auto")),
    listed=st.booleans(),
    instruction_set=st.sampled_from(SETS),
)
@settings(max_examples=100)
def test_random_networks_spike_alike(
    seed: int, images: int, steps: int, coding: Coding, engine: str, listed: bool, instruction_set: str
) -> None:
    """Narrow layers look their currents up, or list their spikes as wide ones do."""
    lookup_of = (lambda *_: None) if listed else plan.lookup_of
    with patch.object(plan, "lookup_of", lookup_of), on(instruction_set):
        compare(random_net(seed), images, steps, coding, engine, seed)


SMALL = ((1, 1), (1, 4), (2, 2), (3, 2), (4, 4), (5, 3))


@pytest.mark.parametrize(("space", "padding"), [(s, p) for s in SMALL for p in (0, 1, 2) if min(s) + 2 * p >= 3])
@pytest.mark.parametrize("instruction_set", SETS)
def test_a_window_at_the_border_adds_what_lies_inside(
    space: tuple[int, int], padding: int, instruction_set: str
) -> None:
    """Maps so small that most windows are cut, with so many spikes that the sums stay in registers."""
    weight = dyadic(5, 40, 48, 3, 3)
    conv = Conv(weight, dyadic(6, 40), (1, 1), (padding,) * 4, (1, 1), 1)
    net = chain((48, *space), ("first", fire(0.5)), ("conv", conv), ("second", fire(2.0)))
    x = dyadic(7, 3, 48, *space, low=0, high=8)
    options = {"fit": True, "first_spikes": True}
    with on(instruction_set):
        assert_same(simulate(net, x, 9, engine="dense", **options), simulate(net, x, 9, engine="event", **options))


@pytest.mark.parametrize("width", range(1, 10))
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("instruction_set", SETS)
def test_windows_that_overlap_share_their_sums(width: int, padding: int, instruction_set: str) -> None:
    """Lines of any length, with pixels that are silent among pixels with more spikes than 16 bits can add."""
    if width + 2 * padding < 3:
        return
    conv = Conv(dyadic(5, 40, 48, 3, 3), dyadic(6, 40), (1, 1), (padding,) * 4, (1, 1), 1)
    net = chain((48, 4, width), ("first", fire(0.5)), ("conv", conv), ("second", fire(2.0)))
    x = dyadic(7, 3, 48, 4, width, low=0, high=8) * (dyadic(8, 3, 1, 4, width, low=0, high=3) > 0)
    options = {"fit": True, "first_spikes": True}
    [route] = plan.stage_tables(net, True)[1].routes
    assert route.run == max(0, width - 4 + 2 * padding if padding < 2 else width)
    with on(instruction_set):
        event = EventSimulation(net, x, choose=False, **options)
        event.advance(9)
        [chunk] = event.groups[0].settings.plan.chunks()
    assert chunk.choice(1) == (True, 1, [1]), "so many spikes that windows share their sums"
    assert_same(simulate(net, x, 9, engine="dense", **options), event.result())


@pytest.mark.parametrize("second", ["conv", "1x1", "skip", "same"])
def test_currents_of_several_kinds_add_up(second: str) -> None:
    """Whole numbers of different units, and floats: two convolutions, a convolution and a skip connection."""
    channels = 40
    start = Node("first", fire(0.5), (INPUT,))
    left = Node(
        "left", Conv(dyadic(5, channels, channels, 3, 3), dyadic(6, channels), (1, 1), (1, 1, 1, 1)), ("first",)
    )
    size, pad = (3, (1, 1, 1, 1)) if second == "conv" else (1, (0, 0, 0, 0))
    unit = 1 / 64 if second != "same" else 1 / 8
    right = Node("right", Conv(dyadic(9, channels, channels, size, size, unit=unit), None, (1, 1), pad), ("first",))
    between = () if second == "skip" else (right,)
    total = Node("sum", Add(), ("left", "first" if second == "skip" else "right"))
    end = Node("second", fire(2.0), ("sum",))
    net = SpikingNet((Node(INPUT, Input()), start, left, *between, total, end), "second", (channels, 6, 5))
    x = dyadic(7, 3, channels, 6, 5, low=0, high=8)
    options = {"fit": True, "first_spikes": True}
    assert_same(simulate(net, x, 9, engine="dense", **options), simulate(net, x, 9, engine="event", **options))


@pytest.mark.parametrize("image_first", [False, True])
def test_spikes_beside_the_constant_image(image_first: bool) -> None:
    """Only one part of a concatenation spikes; the other is a current that never changes."""
    first, parts = Node("first", fire(0.5), (INPUT,)), (INPUT, "first") if image_first else ("first", INPUT)
    both = Node("both", Concat(1), parts)
    conv = Node("conv", Conv(dyadic(5, 40, 10, 3, 3), None, (1, 1), (1, 1, 1, 1)), ("both",))
    net = SpikingNet(
        (Node(INPUT, Input()), first, both, conv, Node("second", fire(2.0), ("conv",))), "second", (5, 6, 6)
    )
    x = dyadic(7, 3, 5, 6, 6, low=0, high=8)
    options = {"fit": True, "first_spikes": True}
    assert_same(simulate(net, x, 9, engine="dense", **options), simulate(net, x, 9, engine="event", **options))


def test_many_steps_stay_in_order() -> None:
    """More than either engine keeps in one piece."""
    compare(random_net(4), images=2, steps=150, coding=Poisson(amplitude=2.0, seed=1), engine="event", seed=4)
    net = random_net(5)
    x = random_images(net, 2, 5)
    one_by_one, together = DenseSimulation(net, x, fit=True), DenseSimulation(net, x, fit=True)
    for _ in range(150):
        one_by_one.advance(1)
    together.advance(150)
    for a, b in zip(one_by_one.result().layers, together.result().layers, strict=True):
        assert torch.equal(a.spikes, b.spikes)
        assert torch.equal(a.synaptic_ops, b.synaptic_ops)
        assert len(a.spikes) == 150


@pytest.mark.parametrize("channels", [4096, 4097])
def test_more_pooled_channels_than_an_entry_can_name(channels: int) -> None:
    """An entry has 12 bits for the channel of a pooled spike; where they are too few, the pixels are listed."""
    linear = Linear(dyadic(2, 3, channels), None)
    pool, flat = AvgPool((2, 2), (2, 2), (0, 0)), Reshape((channels,))
    between = (("pool", pool), ("flat", flat), ("linear", linear))
    net = chain((channels, 2, 2), ("first", fire()), *between, ("second", fire(4.0)))
    x = dyadic(3, 2, channels, 2, 2, low=0)
    options = {"fit": True, "first_spikes": True}
    event = simulate(net, x, 6, engine="event", **options)
    assert_same(simulate(net, x, 6, engine="dense", **options), event)
    assert event.layers[1].spikes.sum() > 0
