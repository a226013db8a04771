"""Networks in other simulators, spike for spike; where a simulator is not installed, the message says how."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from exported import converted
from torch import Tensor, nn

import ratenorm as rn
from ratenorm.convert.convert import Conversion
from ratenorm.errors import ConversionError, UsageError
from ratenorm.graph.net import run
from ratenorm.graph.ops import Fire
from ratenorm.interop.checking import SIMULATORS, compare
from ratenorm.interop.reader import Reader

pytest.importorskip("nir", reason="NIR files need the packages nir and h5py (ratenorm[nir])")


def missing(name: str) -> bool:
    return importlib.util.find_spec(name) is None


@pytest.mark.parametrize("name", list(SIMULATORS))
@pytest.mark.parametrize("which", ["cnn", "residual"])
def test_every_spike_is_the_same(name: str, which: str, request: Any, tmp_path: Path) -> None:
    if missing(name):
        pytest.skip(f"{name} is not installed here: make exchange-check runs it")
    conversion = request.getfixturevalue(which)
    found = rn.interop.check(conversion, name, torch.rand(6, *conversion.net.input_shape), 20, batch=4)
    assert found.equal, str(found)
    assert found.outputs_equal


@pytest.mark.parametrize("name", list(SIMULATORS))
def test_step_biases_are_added(name: str, cnn: Conversion) -> None:
    if missing(name):
        pytest.skip(f"{name} is not installed here: make exchange-check runs it")
    nodes = tuple(
        replace(n, op=replace(n.op, step_bias=torch.tensor([[0.5], [-0.25], [0.0]]))) if isinstance(n.op, Fire) else n
        for n in cnn.net.nodes
    )
    net = replace(cnn.net, nodes=nodes)
    assert rn.interop.check(net, name, torch.rand(3, *net.input_shape), 8).equal


@pytest.mark.parametrize("name", list(SIMULATORS))
def test_a_simulator_that_is_not_there_is_asked_for_by_name(name: str, cnn: Conversion) -> None:
    if not missing(name):
        pytest.skip(f"{name} is installed here")
    with pytest.raises(UsageError, match=f"'{name}', which is not installed.*pip install --no-deps {name}"):
        SIMULATORS[name](cnn)


class _Twin(nn.Module):
    """Another simulator, made of our own operations, that may be told to err."""

    def __init__(self, net: rn.SpikingNet, wrong_at: tuple[int, int] | None) -> None:
        super().__init__()
        self.net, self.wrong_at = net, wrong_at
        self.neurons = nn.ModuleDict({node.name.replace(".", "_"): nn.Identity() for node in net.populations})
        self.state: dict[str, Tensor] = {}
        self.step = 0

    def begin(self, batch: int) -> None:
        self.step, self.state = 0, {}
        for node in self.net.populations:
            assert isinstance(node.op, Fire)
            shape = (batch, *self.net.shapes[node.name])
            self.state[node.name] = node.op.start.expand(shape).clone()

    def advance(self, x: Tensor) -> Tensor:
        self.step += 1
        values: dict[str, Tensor] = {}
        for node in self.net.nodes:
            inputs = [values[i] for i in node.inputs]
            if not inputs:
                values[node.name] = x
            elif isinstance(node.op, Fire):
                v = self.state[node.name] + inputs[0]
                spikes = (v >= node.op.threshold).float()
                self.state[node.name] = v - node.op.threshold * spikes
                if self.wrong_at == (self.step, list(self.state).index(node.name)):
                    spikes[1].view(-1)[3] = 1 - spikes[1].view(-1)[3]
                values[node.name] = self.neurons[node.name.replace(".", "_")](spikes)
            else:
                values[node.name] = self.net.value(node, *inputs)
        return values[self.net.output]

    def reader(self) -> Reader:
        neurons = {node.name: self.neurons[node.name.replace(".", "_")] for node in self.net.populations}
        return Reader("twin", self.net, self, neurons, self.begin, self.advance)


def test_a_check_finds_the_first_difference(residual: Conversion) -> None:
    """By step, then by layer: later differences, which follow from the first, are counted and not shown."""
    net, x = residual.net, torch.rand(3, *residual.net.input_shape)
    right = compare(_Twin(net, None).reader(), x, 6, batch=2)
    assert right.equal
    assert right.outputs_equal
    assert right.answers_equal == 3
    assert "equal" in str(right)
    assert right.compared == 3 * 6 * sum(net.neurons.values())
    wrong = compare(_Twin(net, (4, 1)).reader(), x, 6, batch=3)
    assert not wrong.equal
    assert wrong.first is not None
    assert (wrong.first.step, wrong.first.layer, wrong.first.image) == (4, net.populations[1].name, 1)
    assert "step 4" in str(wrong)
    assert wrong.to_json()["different"] == wrong.different


def test_a_reader_gives_the_mean_outputs(cnn: Conversion) -> None:
    x = torch.rand(2, *cnn.net.input_shape)
    assert torch.equal(_Twin(cnn.net, None).reader()(x, 7), rn.simulate(cnn.net, x, 7).logits)


def test_wrong_calls(cnn: Conversion) -> None:
    with pytest.raises(UsageError, match="spikingjelly, sinabs, snntorch"):
        rn.interop.check(cnn, "nest", torch.rand(1, 1, 9, 9))
    with pytest.raises(AttributeError, match="has no attribute 'nest'"):
        _ = rn.interop.nest
    assert {"check", "export_nir", "spikingjelly"} <= set(dir(rn.interop))
    assert run(cnn.net, torch.rand(1, 1, 9, 9)).shape == (1, 5)


def test_thresholds_by_channel_are_refused_where_a_simulator_knows_one(tmp_path: Path) -> None:
    from ratenorm.interop.reader import loaded, one_threshold

    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 16, 2))
    file = loaded(converted(model, (1, 6, 6), method="channel"))
    with pytest.raises(ConversionError, match=r"'1' has thresholds from .* take sinabs"):
        one_threshold("SpikingJelly", file)
