"""Fan-out against brute force: borders, strides, dilation, groups, skips, pools and all."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from builders import chain, fire
from ratenorm.graph.net import INPUT, Node, SpikingNet, run
from ratenorm.graph.ops import (
    AdaptiveAvgPool,
    Add,
    Affine,
    AvgPool,
    Concat,
    Conv,
    Fire,
    Input,
    Linear,
    MaxPool,
    Op,
    Permute,
    Reshape,
    Slice,
    Upsample,
)


def conv_synapses(conv: Conv, shape: tuple[int, int, int]) -> Tensor:
    """Count, output by output and tap by tap, how often each input is read: no convolution involved."""
    _channels, height, width = shape
    left, right, top, bottom = conv.padding
    counts = torch.zeros(shape, dtype=torch.float64)
    c_out, c_in, kh, kw = conv.weight.shape
    out_h = (height + top + bottom - conv.dilation[0] * (kh - 1) - 1) // conv.stride[0] + 1
    out_w = (width + left + right - conv.dilation[1] * (kw - 1) - 1) // conv.stride[1] + 1
    for o, i, y, x, a, b in itertools.product(
        range(c_out), range(c_in), range(out_h), range(out_w), range(kh), range(kw)
    ):
        row = y * conv.stride[0] + a * conv.dilation[0] - top
        column = x * conv.stride[1] + b * conv.dilation[1] - left
        if 0 <= row < height and 0 <= column < width:
            counts[o // (c_out // conv.groups) * c_in + i, row, column] += 1
    return counts


def ones(c_out: int, c_in: int, kh: int, kw: int) -> Tensor:
    return torch.randn(c_out, c_in, kh, kw)  # the values must not matter


@pytest.mark.parametrize(
    "conv",
    [
        Conv(ones(4, 2, 3, 3), None, padding=(1, 1, 1, 1)),
        Conv(ones(4, 2, 3, 3), None, stride=(2, 2), padding=(1, 1, 1, 1)),
        Conv(ones(3, 2, 2, 3), torch.ones(3), stride=(1, 2)),
        Conv(ones(2, 2, 3, 3), None, dilation=(2, 1), padding=(1, 1, 2, 2)),
        Conv(ones(4, 1, 3, 3), None, padding=(1, 1, 1, 1), groups=2),
        Conv(ones(3, 2, 2, 2), None, padding=(0, 1, 1, 0)),
    ],
    ids=["plain", "stride", "no border", "dilation", "groups", "one-sided padding"],
)
def test_convolutions(conv: Conv) -> None:
    net = chain((2, 5, 6), ("fire", fire()), ("conv", conv))
    assert torch.equal(net.fan_out["fire"], conv_synapses(conv, (2, 5, 6)))


def test_linear_layers_and_reshapes() -> None:
    net = chain(
        (2, 3, 3), ("fire", fire()), ("flat", Reshape((18,))), ("out", Linear(torch.randn(7, 18), torch.ones(7)))
    )
    assert torch.equal(net.fan_out["fire"], torch.full((2, 3, 3), 7.0, dtype=torch.float64))


def brute_force(op: Op, shape: tuple[int, ...]) -> Tensor:
    """One spike at a time through an operation whose coefficients are all positive: how many outputs notice."""
    eye = torch.eye(torch.Size(shape).numel(), dtype=torch.float64)
    answers = op(eye.reshape(-1, *shape)) != op(torch.zeros(1, *shape, dtype=torch.float64))
    return answers.flatten(1).sum(1).double().reshape(shape)


@pytest.mark.parametrize(
    "op",
    [
        AvgPool((2, 2), (2, 2), (0, 0)),
        AvgPool((3, 2), (2, 1), (1, 0)),
        AvgPool((3, 3), (2, 2), (1, 1), ceil_mode=True),
        AvgPool((2, 2), (2, 2), (1, 1), count_include_pad=False),
        AdaptiveAvgPool((2, 4)),
        MaxPool((2, 2), (2, 2), (0, 0), (1, 1)),
        MaxPool((3, 3), (2, 2), (1, 1), (1, 1)),
        MaxPool((2, 2), (2, 2), (0, 0), (1, 1), ceil_mode=True),
        MaxPool((2, 2), (1, 1), (0, 0), (2, 2)),
        Upsample((10, 12)),
        Permute((0, 2, 3, 1)),
        Slice(1, 0, 1),
        Slice(2, 1, 4),
        Affine(scale=torch.tensor([0.5]), shift=torch.tensor([1.0])),
    ],
    ids=lambda op: op.kind,
)  # fmt: skip
def test_operations_without_weights(op: Op) -> None:
    net = chain((2, 5, 6), ("fire", fire()), ("op", op))
    assert torch.equal(net.fan_out["fire"], brute_force(op, (2, 5, 6)))


@pytest.mark.parametrize("op", [AvgPool((2,), (2,), (0,)), AvgPool((3,), (1,), (1,)), AdaptiveAvgPool((3,)),
                                MaxPool((3,), (2,), (1,), (1,)), Upsample((14,))], ids=lambda op: op.kind)  # fmt: skip
def test_operations_in_one_dimension(op: Op) -> None:
    net = chain((2, 7), ("fire", fire()), ("op", op))
    assert torch.equal(net.fan_out["fire"], brute_force(op, (2, 7)))


def skip_net() -> SpikingNet:
    """A spike reaches the output twice over: through a convolution, and through a skip; concatenated once more."""
    conv = Conv(torch.randn(2, 2, 3, 3), None, padding=(1, 1, 1, 1))
    nodes = (
        Node(INPUT, Input()),
        Node("first", fire(), (INPUT,)),
        Node("conv", conv, ("first",)),
        Node("sum", Add(), ("conv", "first")),
        Node("second", fire(), ("sum",)),
        Node("both", Concat(1), ("first", "second", "second")),
        Node("flat", Reshape((6 * 16,)), ("both",)),
        Node("out", Linear(torch.randn(5, 96), None), ("flat",)),
    )
    return SpikingNet(nodes, "out", (2, 4, 4))


def test_skips_and_concatenation() -> None:
    net = skip_net()
    conv = net["conv"].op
    assert isinstance(conv, Conv)
    assert torch.equal(net.fan_out["first"], conv_synapses(conv, (2, 4, 4)) + 1 + 5)
    assert torch.equal(net.fan_out["second"], torch.full((2, 4, 4), 10.0, dtype=torch.float64))


def test_a_path_ends_at_the_next_population_and_starts_anew_behind_a_max_pool() -> None:
    net = chain(
        (1, 4, 4),
        ("first", fire()),
        ("pool", MaxPool((2, 2), (2, 2), (0, 0), (1, 1))),
        ("conv", Conv(torch.randn(3, 1, 2, 2), None)),
        ("second", fire()),
    )
    assert torch.equal(net.fan_out["first"], torch.ones(1, 4, 4, dtype=torch.float64))  # compared once each
    assert torch.equal(net.fan_out["pool"], torch.full((1, 2, 2), 3.0, dtype=torch.float64))
    assert float(net.fan_out["second"].sum()) == 0.0  # the output itself


def test_products_of_pools_and_weights() -> None:
    pool, conv = AvgPool((2, 2), (2, 2), (0, 0)), Conv(torch.randn(2, 1, 3, 3), None, padding=(1, 1, 1, 1))
    net = chain((1, 6, 6), ("fire", fire()), ("pool", pool), ("conv", conv))
    behind = conv_synapses(conv, (1, 3, 3))
    assert torch.equal(net.fan_out["fire"], behind.repeat_interleave(2, 1).repeat_interleave(2, 2))


def test_a_population_that_nothing_reads_has_no_synapses() -> None:
    nodes = (
        Node(INPUT, Input()),
        Node("unread", fire(), (INPUT,)),
        Node("read", fire(), (INPUT,)),
        Node("out", Linear(torch.ones(2, 3), None), ("read",)),
    )
    net = SpikingNet(nodes, "out", (3,))
    assert net.fan_out["unread"].tolist() == [0.0, 0.0, 0.0]
    assert net.fan_out["read"].tolist() == [2.0, 2.0, 2.0]


def test_nothing_but_a_population() -> None:
    net = SpikingNet((Node(INPUT, Input()), Node("fire", fire(), (INPUT,))), "fire", (3,))
    assert net.fan_out["fire"].tolist() == [0.0, 0.0, 0.0]
    assert isinstance(net["fire"].op, Fire)
    assert run(net, torch.tensor([[0.5, -1.0, 2.0]])).tolist() == [[0.5, 0.0, 1.0]]
