"""The graph: what is refused, shapes, counters, copies, equality."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from builders import chain, fire, tiny_conversion
from ratenorm.errors import ConversionError, SimulationError
from ratenorm.graph.net import INPUT, Graph, Node, run
from ratenorm.graph.ops import KINDS, Activation, Add, Affine, Conv, Fire, Input, Linear, Op, Reshape

START = Node(INPUT, Input())
LINEAR = Linear(torch.ones(2, 3), None)


@pytest.mark.parametrize(
    ("nodes", "output", "words"),
    [
        ((START, Node("a", LINEAR, (INPUT,)), Node("a", LINEAR, (INPUT,))), "a", "two nodes are called 'a'"),
        ((START, Node("a", LINEAR, ("b",))), "a", r"'a' reads \['b'\]"),
        ((START, Node("a", LINEAR, (INPUT, INPUT))), "a", "has 2 inputs, it takes 1"),
        ((Node("a", Affine(), ()),), "a", "has 0 inputs, it takes 1"),
        ((), "a", "first node must be the input"),
        ((START,), "b", "the output 'b' is not one of its nodes"),
    ],
    ids=["twice", "unknown input", "too many inputs", "too few inputs", "empty", "no output"],
)
def test_what_is_no_graph_is_refused(nodes: tuple[Node, ...], output: str, words: str) -> None:
    with pytest.raises(ConversionError, match=words):
        Graph(nodes, output, (3,))


@pytest.mark.parametrize("threshold", [0.0, -1.0, float("nan"), float("inf")])
def test_thresholds_must_be_positive_and_finite(threshold: float) -> None:
    with pytest.raises(ConversionError, match="'fire' has threshold"):
        chain((3,), ("fire", Fire(torch.tensor([1.0, threshold, 1.0]), torch.zeros(1))))


def test_a_spiking_net_has_no_analog_activation() -> None:
    with pytest.raises(ConversionError, match="'relu' is still an analog activation"):
        chain((3,), ("relu", Activation()))


def test_shapes_macs_and_neurons() -> None:
    net = chain(
        (2, 6, 6),
        ("conv", Conv(torch.ones(4, 2, 3, 3), torch.ones(4), stride=(2, 2))),
        ("fire", fire()),
        ("flat", Reshape((16,))),
        ("out", Linear(torch.ones(5, 16), None)),
    )
    assert net.shapes == {INPUT: (2, 6, 6), "conv": (4, 2, 2), "fire": (4, 2, 2), "flat": (16,), "out": (5,)}
    assert net.macs == {"conv": 16 * 18, "out": 80}
    assert net.input_macs == 16 * 18
    assert net.neurons == {"fire": 16}
    assert net.parameters == 72 + 4 + 1 + 1 + 80
    assert net.static == {INPUT, "conv"}
    assert [n.name for n in net.populations] == ["fire"]
    assert [n.name for n in net] == [INPUT, "conv", "fire", "flat", "out"]
    assert net.device == torch.device("cpu")


def test_copies_of_another_precision_leave_the_original_alone() -> None:
    conversion, x = tiny_conversion()
    double = conversion.net.to(torch.float64)
    assert all(t.dtype == torch.float64 for n in double for t in n.op.tensors().values())
    assert all(t.dtype == torch.float32 for n in conversion.net for t in n.op.tensors().values())
    torch.testing.assert_close(run(double, x.double()).float(), run(conversion.net, x), rtol=1e-4, atol=1e-5)
    assert conversion.net.to("cpu").same_as(conversion.net)


def test_equality_sees_every_bit() -> None:
    net = tiny_conversion()[0].net
    assert net.same_as(net.map_tensors(torch.clone))
    assert not net.same_as(net.to(torch.float64))
    assert not net.same_as(replace(net, nodes=net.nodes[:-1], output=net.nodes[-2].name))
    for i, node in enumerate(net.nodes):
        for name, value in node.op.tensors().items():
            changed = value.clone()
            changed.view(-1)[0] = torch.nextafter(changed.view(-1)[0], torch.tensor(torch.inf))
            other = replace(node, op=replace(node.op, **{name: changed}))
            assert not net.same_as(replace(net, nodes=(*net.nodes[:i], other, *net.nodes[i + 1 :])))
    conv = net.nodes[1]
    assert isinstance(conv.op, Conv)
    without = replace(net, nodes=(net.nodes[0], replace(conv, op=replace(conv.op, bias=None)), *net.nodes[2:]))
    assert not net.same_as(without)
    assert not without.same_as(net)
    strided = replace(net, nodes=(net.nodes[0], replace(conv, op=replace(conv.op, groups=2)), *net.nodes[2:]))
    assert not net.same_as(strided)


def test_the_input_must_fit() -> None:
    net = chain((3,), ("fire", fire()))
    with pytest.raises(SimulationError, match=r"\(2, 4\).*\[batch, 3\]"):
        run(net, torch.zeros(2, 4))


def test_every_operation_is_known_by_its_kind() -> None:
    assert all(KINDS[kind].kind == kind for kind in KINDS)
    assert len(KINDS) == 15


def test_an_operation_without_meaning_says_so() -> None:
    with pytest.raises(TypeError, match="an engine gives it its meaning"):
        Input()(torch.zeros(1))
    assert Op().settings() == {}


def test_values_are_dropped_after_their_last_use_but_not_the_output() -> None:
    nodes = (
        START,
        Node("first", Affine(scale=torch.tensor([2.0])), (INPUT,)),
        Node("second", Add(), ("first", INPUT)),
    )
    graph = Graph(nodes, "first", (2,))
    assert graph.last_use == {INPUT: "second", "first": "second", "second": "second"}
    assert run(graph, torch.ones(1, 2)).tolist() == [[2.0, 2.0]]
    assert [n.name for n in graph.readers[INPUT]] == ["first", "second"]
