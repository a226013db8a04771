"""Corners of folding that random networks rarely reach."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ratenorm.convert.fold import channel_vector, fold
from ratenorm.graph.net import INPUT, Graph, Node, run
from ratenorm.graph.ops import Add, Affine, AvgPool, Concat, Conv, Input, Linear, MaxPool, Op, Reshape

START = Node(INPUT, Input())
IMAGE = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0))


def graph(*nodes: tuple[str, Op, tuple[str, ...]], shape: tuple[int, ...] = (2, 4, 4)) -> Graph:
    made = tuple(Node(name, op, inputs) for name, op, inputs in nodes)
    return Graph((START, *made), made[-1].name, shape)


def left(before: Graph, x: Tensor) -> list[str]:
    """Fold, check the function, and name the scales that are left."""
    after = fold(before)
    torch.testing.assert_close(run(after, x), run(before, x), rtol=1e-5, atol=1e-5)
    assert after.output == before.output
    return [n.name for n in after if isinstance(n.op, Affine)]


def scale(*values: float) -> Affine:
    return Affine(scale=torch.tensor(values).reshape(-1, 1, 1))


def conv(outputs: int, inputs: int, **options: object) -> Conv:
    return Conv(torch.randn(outputs, inputs, 3, 3), None, padding=(1, 1, 1, 1), **options)  # type: ignore[arg-type]


def test_a_scale_within_a_channel_is_not_folded_into_a_convolution() -> None:
    within = Affine(scale=torch.rand(2, 4, 4), shift=torch.rand(1, 4, 4))
    assert left(graph(("c", conv(2, 2), (INPUT,)), ("a", within, ("c",))), IMAGE) == ["a"]
    assert left(graph(("a", Affine(scale=torch.rand(2, 4, 4)), (INPUT,)), ("c", conv(2, 2), ("a",))), IMAGE) == ["a"]


def test_a_convolution_that_two_read_is_left_alone() -> None:
    net = graph(("c", conv(2, 2), (INPUT,)), ("a", scale(2.0, 3.0), ("c",)), ("s", Add(), ("a", "c")))
    assert left(net, IMAGE) == ["a"]


def test_a_sum_of_a_value_with_itself_keeps_its_scale() -> None:
    net = graph(("c", conv(2, 2), (INPUT,)), ("s", Add(), ("c", "c")), ("a", scale(2.0, 3.0), ("s",)))
    assert left(net, IMAGE) == ["a"]


def test_negative_scales_do_not_pass_a_maximum_but_pass_a_mean() -> None:
    window = ((2, 2), (2, 2), (0, 0))
    for values, expected in (((2.0, 0.5), []), ((2.0, -0.5), ["a"]), ((2.0, 0.0), ["a"])):
        net = graph(("a", scale(*values), (INPUT,)), ("m", MaxPool(*window, (1, 1)), ("a",)), ("c", conv(2, 2), ("m",)))
        assert left(net, IMAGE) == expected
    net = graph(("a", scale(2.0, -0.5), (INPUT,)), ("m", AvgPool(*window), ("a",)), ("c", conv(2, 2), ("m",)))
    assert left(net, IMAGE) == []


def test_a_scale_that_is_the_output_stays_where_it_is() -> None:
    net = graph(("c", conv(2, 2), (INPUT,)), ("a", scale(2.0, 3.0), ("c",)), ("r", Reshape((32,)), ("a",)))
    shown = Graph(net.nodes, "a", net.input_shape)
    assert left(shown, IMAGE) == []
    assert fold(shown).output == "a"


def test_scales_in_front_of_a_concatenation_join_with_what_has_none() -> None:
    net = graph(
        ("a", scale(2.0, 3.0), (INPUT,)),
        ("k", Concat(1), ("a", INPUT, "a")),
        ("c", conv(2, 6), ("k",)),
    )
    assert left(net, IMAGE) == []


def test_names_that_are_taken_are_numbered() -> None:
    net = graph(
        ("a", scale(2.0, 3.0), (INPUT,)),
        ("r.unscaled", conv(2, 2), (INPUT,)),
        ("r", Reshape((32,)), ("a",)),
        ("flat", Reshape((32,)), ("r.unscaled",)),
        ("s", Add(), ("r", "flat")),
        ("l", Linear(torch.randn(3, 32), None), ("s",)),
    )
    left(net, IMAGE)


def test_a_factor_as_one_entry_a_channel() -> None:
    assert channel_vector(None, (2, 4, 4)) is None
    assert channel_vector(torch.tensor([3.0]), (2, 4, 4)).tolist() == [3.0, 3.0]
    assert channel_vector(torch.rand(4), (2, 4, 4)) is None  # along the last dimension
    assert channel_vector(torch.rand(2), (2,)) is not None


@pytest.mark.parametrize("values", [(2.0, 3.0), (2.0, -0.5)])
def test_a_scale_of_channels_goes_past_a_flattening_into_the_weights(values: tuple[float, ...]) -> None:
    linear = Linear(torch.randn(3, 32), torch.randn(3))
    net = graph(("a", scale(*values), (INPUT,)), ("r", Reshape((32,)), ("a",)), ("l", linear, ("r",)))
    assert left(net, IMAGE) == []
    rows = graph(("a", scale(*values), (INPUT,)), ("r", Reshape((2, 16)), ("a",)), ("c", rowwise(), ("r",)))
    assert left(rows, IMAGE) == []


def rowwise() -> Conv:
    return Conv(torch.randn(4, 2, 3), None, stride=(1,), padding=(1, 1), dilation=(1,))
