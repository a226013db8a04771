"""On the grid, sums over spikes are exact: every engine gives the same spikes on real weights, bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from builders import chain, fire, randomise_batch_norm_
from ratenorm.convert.convert import convert
from ratenorm.convert.grid import BITS, _unit, on_grid
from ratenorm.convert.thresholds import ChannelNorm, MaxNorm, Method
from ratenorm.graph.net import INPUT, Node, SpikingNet
from ratenorm.graph.ops import Affine, AvgPool, Concat, Conv, Input, Linear, MaxPool
from ratenorm.models import build
from ratenorm.simulate.simulate import simulate


def real(name: str, seed: int, method: Method | None = None) -> tuple[SpikingNet, torch.Tensor]:
    """A network of ours with random weights that lie on no grid, converted."""
    torch.manual_seed(seed)
    model = randomise_batch_norm_(build(name, activation=nn.ReLU), seed).eval()
    size = (1, 28, 28) if name in ("cnn7", "alexnet") else (3, 32, 32)
    x = torch.rand(2, *size)
    return convert(model, method or MaxNorm(), example=x[:1], calibration=x, v0=0.3).net, x


@pytest.mark.parametrize("method", [MaxNorm(), ChannelNorm()], ids=lambda m: m.label)
@pytest.mark.parametrize("name", ["cnn7", "vgg11", "preact_resnet20"])
def test_all_engines_agree_bit_for_bit_on_real_weights(name: str, method: Method) -> None:
    """A deep network would show the least difference, since it multiplies it layer by layer."""
    net, x = real(name, 1, method)
    results = [
        simulate(net, x, 12, engine="dense"),
        simulate(net, x, 12, engine="dense", chunk=12),
        simulate(net, x, 12, engine="event"),
        simulate(net, x, 12, engine="auto"),
    ]
    assert sum(float(layer.counts.sum()) for layer in results[0].layers) > 0
    for other in results[1:]:
        assert torch.equal(results[0].logits, other.logits)
        for a, b in zip(results[0].layers, other.layers, strict=True):
            assert torch.equal(a.counts, b.counts)
            assert torch.equal(a.potential, b.potential)


@given(st.integers(0, 10**6), st.integers(1, 400), st.floats(1e-6, 1e6))
@settings(max_examples=50)
def test_a_sum_on_the_grid_is_exact_in_any_order(seed: int, inputs: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    linear = Linear(size * torch.randn(3, inputs, generator=generator), size * torch.randn(3, generator=generator))
    net = on_grid(chain((inputs,), ("first", fire()), ("linear", linear), ("second", fire())))
    op = net["linear"].op
    assert isinstance(op, Linear)
    spikes = (torch.rand(inputs, generator=generator) < 0.5).float()
    exact = (op.weight.double() @ spikes.double() + op.bias.double()).float()
    for _ in range(3):
        order = torch.randperm(inputs, generator=generator)
        total = op.bias.clone()
        for i in order.tolist():
            total += op.weight[:, i] * spikes[i]
        assert torch.equal(total, exact)


@given(st.integers(0, 10**6), st.integers(1, 400))
def test_the_grid_is_as_fine_as_the_sum_allows(seed: int, inputs: int) -> None:
    """A weight moves by at most half a step, and a step is at most twice the largest possible sum over 2^24."""
    weight = torch.randn(3, inputs, generator=torch.Generator().manual_seed(seed))
    net = on_grid(chain((inputs,), ("first", fire()), ("linear", Linear(weight, None)), ("second", fire())))
    largest = float(weight.abs().sum(1).max())
    assert float((net["linear"].op.weight - weight).abs().max()) <= 1.01 * largest / 2**BITS


@pytest.mark.parametrize("seed", range(5))
def test_a_sum_is_exact_behind_a_pool_as_well(seed: int) -> None:
    """What a pool averages is a fourth of a weight: the weights before it lie on a grid four times as coarse."""
    generator = torch.Generator().manual_seed(seed)
    conv = Conv(torch.randn(2, 32, 1, 1, generator=generator), None, (1, 1), (0, 0, 0, 0), (1, 1), 2)
    pool = AvgPool((2, 2), (2, 2), (0, 0))
    net = on_grid(chain((64, 2, 2), ("first", fire()), ("conv", conv), ("pool", pool), ("second", fire())))
    op = net["conv"].op
    assert isinstance(op, Conv)
    for channel in range(2):
        terms = (op.weight[channel].flatten() / 4).repeat(4)  # from four pixels each
        exact = terms.double().abs().sum().float()
        for _ in range(3):
            total = torch.zeros(())
            for term in terms[torch.randperm(len(terms), generator=generator)].abs():
                total += term
            assert torch.equal(total, exact)


def test_on_the_grid_nothing_moves_any_more() -> None:
    net, _ = real("preact_resnet20", 2)
    assert on_grid(net).same_as(net)


def test_a_pool_before_and_a_pool_behind_a_layer_are_allowed_for() -> None:
    generator = torch.Generator().manual_seed(0)
    conv = Conv(torch.randn(4, 4, 1, 1, generator=generator), torch.randn(4, generator=generator))
    pool = AvgPool((2, 2), (2, 2), (0, 0))
    net = chain((4, 8, 8), ("first", fire()), ("pool", pool), ("conv", conv), ("behind", pool), ("second", fire()))
    net = on_grid(net)
    x = 2 * torch.rand(2, 4, 8, 8, generator=generator)  # half of the neurons fire in the first step
    single, double = simulate(net, x, 1, engine="dense"), simulate(net.to(torch.float64), x.double(), 1, engine="dense")
    assert torch.equal(single.layers[1].potential.double(), double.layers[1].potential)
    assert torch.equal(*(simulate(net, x, 9, engine=engine).logits for engine in ("dense", "event")))


def test_what_lies_on_no_grid_is_left_alone() -> None:
    """The layer that sees the image; layers behind a pool over nine, or behind another layer."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 4, 1, 1, generator=generator)
    scale = torch.rand(4, 1, 1, generator=generator)
    nine = AvgPool((3, 3), (3, 3), (0, 0))
    net = chain(
        (4, 9, 9),
        ("image", Conv(weight, None)),
        ("first", fire()),
        ("nine", nine),
        ("behind nine", Conv(weight, None)),
        ("second", fire()),
        ("scale", Affine(scale=scale)),
        ("behind scale", Conv(weight, None)),
        ("third", fire()),
    )
    rounded = on_grid(net)
    for name in ("image", "behind nine", "behind scale"):
        assert torch.equal(rounded[name].op.weight, weight), name
    assert torch.equal(rounded["scale"].op.scale, scale)


@pytest.mark.parametrize("parts", [("mean", "largest"), ("largest", "mean"), ("largest", "largest")])
def test_what_reaches_a_layer_is_a_multiple_of_its_unit(parts: tuple[str, str]) -> None:
    """Of spikes that come over different pools the smallest unit counts."""
    window = ((2, 2), (2, 2), (0, 0))
    nodes = [Node(INPUT, Input()), Node("first", fire(), (INPUT,)), Node("mean", AvgPool(*window), ("first",))]
    nodes += [Node("largest", MaxPool(*window, (1, 1)), ("first",)), Node("both", Concat(1), parts)]
    nodes.append(Node("conv", Conv(torch.randn(3, 4, 3, 3), None), ("both",)))
    net = SpikingNet(tuple(nodes), "conv", (2, 8, 8))
    spikes = (torch.rand(5, 2, 8, 8) < 0.5).float()
    arriving = torch.cat([net[part].op(spikes) for part in parts], 1)
    unit = _unit(net, "conv")
    assert unit is not None
    assert torch.equal((arriving / unit).round() * unit, arriving)
    assert unit == arriving[arriving > 0].min()
