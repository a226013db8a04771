"""Files of networks and of spiking networks: equal after a round trip, refused when damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from builders import chain, fire, same_state, state_of, tiny_conversion
from random_networks import Recipe, recipes
from ratenorm import MaxNorm, convert
from ratenorm.core.rate_norm import RateNorm, rate_norm_layers, set_p_
from ratenorm.errors import CalibrationError, FileFormatError, RatenormError, UsageError
from ratenorm.graph.ops import Activation, Linear, MaxPool
from ratenorm.io.files import read_tensors, write_tensors
from ratenorm.io.networks import FORMAT as NETWORK
from ratenorm.io.networks import NetworkSpec, load_network, save_network
from ratenorm.io.spiking import FORMAT, VERSION, load, load_with_about, save

SPEC = NetworkSpec("cnn7", "rate_norm", 4, 1, (28, 28), (0.5,), (0.25,), ("a", "b", "c", "d"), "letters")


# -- spiking networks -------------------------------------------------------------------------------------------------


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(recipe=recipes())
def test_any_spiking_network_comes_back_equal(tmp_path: Path, recipe: Recipe) -> None:
    try:
        net = convert(recipe.build(), MaxNorm(), example=recipe.images(1), calibration=recipe.images(), v0=0.5).net
    except CalibrationError:
        return
    path = save(net, tmp_path / "net.safetensors", {"θ": [1, None]})
    found, about = load_with_about(path)
    assert found.same_as(net)
    assert about == {"θ": [1, None]}
    assert save(found, tmp_path / "again.safetensors", about).read_bytes() == path.read_bytes()


def test_without_about_there_is_an_empty_one(tmp_path: Path) -> None:
    net = tiny_conversion()[0].net
    assert load_with_about(save(net, tmp_path / "net"))[1] == {}
    assert load(tmp_path / "net").same_as(net)


def test_a_start_for_each_neuron_and_no_bias_survive(tmp_path: Path) -> None:
    net = chain((3,), ("fire", fire()), ("out", Linear(torch.ones(2, 3), None)))
    full = replace(net["fire"].op, start=torch.tensor([0.1, 0.2, 0.3]))
    net = replace(net, nodes=(net.nodes[0], replace(net["fire"], op=full), net.nodes[2]))
    assert load(save(net, tmp_path / "net")).same_as(net)


def rewritten(path: Path, change: Any) -> Path:
    """The file with its content or tensors changed and a right checksum: damage that only the reader can find."""
    tensors, content = read_tensors(path, FORMAT, VERSION)
    change(tensors, content)
    return write_tensors(path, tensors, content)


DAMAGE = {
    "unknown operation": lambda t, c: c["nodes"][1].update(kind="softmax"),
    "no operation": lambda t, c: c["nodes"][1].pop("kind"),
    "analog activation": lambda t, c: c["nodes"][2].update(kind="activation"),
    "unknown setting": lambda t, c: c["nodes"][1]["settings"].update(colour=3),
    "unknown input": lambda t, c: c["nodes"][1].update(inputs=["nowhere"]),
    "no inputs": lambda t, c: c["nodes"][1].update(inputs=[]),
    "inputs are a number": lambda t, c: c["nodes"][1].update(inputs=3),
    "nodes are a number": lambda t, c: c.update(nodes=3),
    "nodes are texts": lambda t, c: c.update(nodes=["a"]),
    "no nodes": lambda t, c: c.pop("nodes"),
    "no input node": lambda t, c: c["nodes"].pop(0),
    "unknown output": lambda t, c: c.update(output="nowhere"),
    "wrong input shape": lambda t, c: c.update(input_shape=[2, 8, 8]),
    "negative input shape": lambda t, c: c.update(input_shape=[1, -8, 8]),
    "empty input shape": lambda t, c: c.update(input_shape=[1, 0, 8]),
    "input shape of words": lambda t, c: c.update(input_shape=["a"]),
    "stride of zero": lambda t, c: c["nodes"][1]["settings"].update(stride=[0, 0]),
    "stride of words": lambda t, c: c["nodes"][1]["settings"].update(stride="two"),
    "missing weight": lambda t, c: t.pop("0//weight"),
    "foreign tensor": lambda t, c: t.update({"elsewhere//weight": torch.zeros(1)}),
    "NaN in a weight": lambda t, c: t["0//weight"].view(-1)[:1].fill_(float("nan")),
    "infinite bias": lambda t, c: t["0//bias"][:1].fill_(float("inf")),
    "negative threshold": lambda t, c: t["2//threshold"].neg_(),
    "weight of another shape": lambda t, c: t.update({"0//weight": torch.zeros(4, 2, 3, 3)}),
    "weight of integers": lambda t, c: t.update({"0//weight": t["0//weight"].long()}),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_parts_that_make_no_network_are_refused(tmp_path: Path, name: str) -> None:
    path = save(tiny_conversion()[0].net, tmp_path / "net.safetensors")
    rewritten(path, DAMAGE[name])
    with pytest.raises(FileFormatError, match=str(path)):
        load(path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 10**6), bit=st.integers(0, 7), cut=st.booleans())
def test_damaged_bytes_are_refused(tmp_path: Path, at: int, bit: int, cut: bool) -> None:
    net = tiny_conversion()[0].net
    path = save(net, tmp_path / "net.safetensors")
    good = path.read_bytes()
    at %= len(good)
    path.write_bytes(good[:at] if cut else good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :])
    try:
        found = load(path)
    except FileFormatError:
        return
    assert found.same_as(net)  # a bit that carries nothing


def test_about_that_is_no_object_is_nothing(tmp_path: Path) -> None:
    path = save(tiny_conversion()[0].net, tmp_path / "net")
    rewritten(path, lambda t, c: c.update(about=[1, 2]))
    assert load_with_about(path)[1] == {}


def test_an_analog_activation_has_no_place_in_the_file() -> None:
    with pytest.raises(RatenormError):
        chain((3,), ("act", Activation()))
    assert MaxPool.kind == "max_pool"


# -- networks ---------------------------------------------------------------------------------------------------------


def network() -> nn.Module:
    torch.manual_seed(1)
    model = SPEC.build()
    for i, (_, layer) in enumerate(rate_norm_layers(model)):
        layer.running_max.fill_(1.0 + i)
        layer.output = "activation" if i == 1 else "rate"
    set_p_(model, 0.75)
    return model


def test_a_network_comes_back_equal(tmp_path: Path) -> None:
    model = network().train()
    found, spec = load_network(save_network(tmp_path / "net.safetensors", model, SPEC))
    assert spec == SPEC
    assert same_state(state_of(model), state_of(found))
    assert not found.training
    assert [layer.output for _, layer in rate_norm_layers(found)] == ["rate", "activation", "rate"]
    assert spec.input_shape == (1, 28, 28)
    assert spec.normalisation.mean == (0.5,)


def test_half_precision_takes_half_the_space_and_keeps_thresholds(tmp_path: Path) -> None:
    model = network()
    whole, half = save_network(tmp_path / "a", model, SPEC), save_network(tmp_path / "b", model, SPEC, half=True)
    assert half.stat().st_size < 0.6 * whole.stat().st_size
    found, _ = load_network(half)
    assert all(p.dtype == torch.float32 for p in found.parameters())
    for (_, a), (_, b) in zip(rate_norm_layers(model), rate_norm_layers(found), strict=True):
        assert float(a.threshold) == float(b.threshold)
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(found(x), model.eval()(x), rtol=1e-2, atol=1e-2)


NETWORK_DAMAGE = {
    "unknown network": lambda t, c: c["spec"].update(model="lenet"),
    "unknown activation": lambda t, c: c["spec"].update(activation="gelu"),
    "unknown setting": lambda t, c: c["spec"].update(colour=1),
    "another width": lambda t, c: c["spec"].update(num_classes=9),
    "no spec": lambda t, c: c.pop("spec"),
    "spec is a list": lambda t, c: c.update(spec=[1]),
    "classes are words": lambda t, c: c["spec"].update(num_classes="ten"),
    "missing weight": lambda t, c: t.pop("classifier.weight"),
    "foreign weight": lambda t, c: t.update(other=torch.zeros(1)),
    "no outputs": lambda t, c: c.pop("outputs"),
    "unknown output": lambda t, c: c["outputs"].update({"features.0.2": "spikes"}),
}


@pytest.mark.parametrize("name", NETWORK_DAMAGE)
def test_a_network_file_that_does_not_fit_is_refused(tmp_path: Path, name: str) -> None:
    path = save_network(tmp_path / "net.safetensors", network(), SPEC)
    tensors, content = read_tensors(path, NETWORK, 1)
    NETWORK_DAMAGE[name](tensors, content)
    write_tensors(path, tensors, content)
    with pytest.raises(FileFormatError, match=str(path)):
        load_network(path)


def test_the_kinds_of_files_are_not_mistaken_for_each_other(tmp_path: Path) -> None:
    spiking, analog = save(tiny_conversion()[0].net, tmp_path / "s"), save_network(tmp_path / "n", network(), SPEC)
    with pytest.raises(FileFormatError, match="holds 'ratenorm-network'"):
        load(analog)
    with pytest.raises(FileFormatError, match="holds 'ratenorm-spiking-net'"):
        load_network(spiking)


def test_a_spec_of_an_unknown_activation_is_refused() -> None:
    with pytest.raises(UsageError, match="must be one of rate_norm, relu"):
        replace(SPEC, activation="gelu").build()
    assert NetworkSpec.from_json(SPEC.to_json()) == SPEC
    assert isinstance(next(rate_norm_layers(SPEC.build()))[1], RateNorm)
