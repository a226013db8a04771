"""Currents that are looked up are those that are added spike by spike, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_equality import assert_same

from builders import chain, dyadic, fire
from ratenorm.convert.grid import gridded
from ratenorm.core.coding import Coding, Constant, Poisson
from ratenorm.graph.net import INPUT, Node, SpikingNet
from ratenorm.graph.ops import Add, Conv, Fire, Input
from ratenorm.simulate.event.lookup import lookup_of
from ratenorm.simulate.event.plan import Stage, plan, stage_tables
from ratenorm.simulate.event.simulation import CHUNK
from ratenorm.simulate.event.tables import StageKind
from ratenorm.simulate.simulate import simulate

OPTIONS = {"fit": True, "first_spikes": True}
SOURCES = {"first": 0}


Sides = tuple[int, int, int, int]  # of a picture: left, right, top, bottom


def layer(inputs: int, outputs: int, space: tuple[int, int], padding: Sides = (1, 1, 1, 1)) -> SpikingNet:
    conv = Conv(dyadic(5, outputs, inputs, 3, 3), dyadic(6, outputs), (1, 1), padding, (1, 1), 1)
    return chain((inputs, *space), ("first", fire(0.5)), ("conv", conv), ("second", fire(2.0)))


def second(net: SpikingNet) -> Stage:
    return plan(net, True).stages[1]


def looked_up(net: SpikingNet) -> bool:
    return stage_tables(net, True)[1].kind == StageKind.LOOKED_UP


@given(
    inputs=st.integers(1, 16),
    outputs=st.integers(1, 16),
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    padding=st.tuples(*4 * [st.integers(-1, 2)]),
    images=st.integers(1, 3),
    steps=st.integers(1, CHUNK + 9),
    coding=st.sampled_from((Constant(), Poisson(amplitude=2.0, seed=3))),
)
@settings(max_examples=40)
def test_layers_of_every_shape(
    inputs: int, outputs: int, height: int, width: int, padding: Sides, images: int, steps: int, coding: Coding
) -> None:
    if width + sum(padding[:2]) < 3 or height + sum(padding[2:]) < 3:
        return
    net = layer(inputs, outputs, (height, width), padding)
    assert looked_up(net) is (min(padding) >= 0)  # a picture that is cut is not looked up
    x = dyadic(7, images, inputs, height, width, low=0, high=8)
    dense = simulate(net, x, steps, engine="dense", coding=coding, **OPTIONS)
    assert_same(dense, simulate(net, x, steps, engine="event", coding=coding, **OPTIONS))


@pytest.mark.parametrize("start", [0.0, 0.5])
@pytest.mark.parametrize("by_pixel", [False, True])
def test_a_residual_block_with_thresholds_of_its_own(start: float, by_pixel: bool) -> None:
    """A skip connection, a threshold for each channel or neuron, a start potential, over several chunks."""
    threshold = dyadic(3, 12, *((6, 5) if by_pixel else (1, 1)), low=4, high=16)
    nodes = [
        Node(INPUT, Input(), ()),
        Node("first", fire(0.5), (INPUT,)),
        Node("conv", Conv(dyadic(1, 12, 12, 3, 3), dyadic(2, 12), (1, 1), (1,) * 4, (1, 1), 1), ("first",)),
        Node("sum", Add(), ("conv", "first")),
        Node("second", Fire(threshold, start * threshold), ("sum",)),
    ]
    net = SpikingNet(tuple(nodes), "second", (12, 6, 5))
    assert looked_up(net)
    assert second(net).skip is not None
    x = dyadic(7, 3, 12, 6, 5, low=0, high=8)
    dense = simulate(net, x, 2 * CHUNK + 3, engine="dense", **OPTIONS)
    assert_same(dense, simulate(net, x, 2 * CHUNK + 3, engine="auto", **OPTIONS))


def test_the_largest_sums_are_right() -> None:
    """All neurons spike in every step and all weights are the largest that a grid has room for."""
    weight = torch.full((16, 16, 3, 3), 1.0) * torch.tensor([1.0, -1.0]).repeat(8)[:, None, None, None]
    conv = Conv(weight, None, (1, 1), (1,) * 4)
    net = gridded(chain((16, 4, 4), ("first", fire()), ("conv", conv), ("second", fire(3.0))), 16)
    assert looked_up(net)
    assert abs(stage_tables(net, True)[1].table.astype(int)).max() * 2 <= 32767
    x = torch.ones(2, 16, 4, 4)
    assert_same(simulate(net, x, 7, engine="dense", **OPTIONS), simulate(net, x, 7, engine="event", **OPTIONS))


def test_it_is_for_narrow_windows_whose_weights_fit() -> None:
    stage = second(layer(16, 16, (4, 4)))
    [route] = stage.listed
    assert lookup_of(stage.layout, (route,), SOURCES) is not None
    assert lookup_of(stage.layout, (route, route), SOURCES) is None
    assert lookup_of(stage.layout, (replace(route, window=None),), SOURCES) is None
    fine = route.weight + 2.0**-15  # sixteen of them need more than 16 bits
    assert lookup_of(stage.layout, (replace(route, weight=fine),), SOURCES) is None
    assert not looked_up(layer(17, 16, (4, 4)))
    assert not looked_up(layer(16, 17, (4, 4)))
