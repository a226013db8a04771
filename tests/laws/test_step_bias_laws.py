"""Laws of the two additions to the neuron: a bias for each step, and signed spikes. Dyadic values: exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import dyadic
from ratenorm.convert.convert import normalise_weights
from ratenorm.core.neuron import integrate_and_fire_, signed_integrate_and_fire_
from ratenorm.errors import FileFormatError
from ratenorm.graph.net import INPUT, Node, SpikingNet
from ratenorm.graph.ops import Fire, Input, Linear
from ratenorm.io.spiking import load, save
from ratenorm.simulate.dense import DenseSimulation
from ratenorm.simulate.simulate import simulate

seeds = st.integers(0, 2**31)


def layer(seed: int, rows: int = 3, signed: bool = False) -> SpikingNet:
    """One spiking layer of four neurons, with step biases, and a readout."""
    fire = Fire(torch.ones(1), torch.full((1,), 0.5), dyadic(seed + 1, rows, 4), signed)
    nodes = (
        Node(INPUT, Input()),
        Node("w", Linear(dyadic(seed, 4, 3), dyadic(seed + 2, 4)), (INPUT,)),
        Node("a", fire, ("w",)),
        Node("out", Linear(dyadic(seed + 3, 2, 4), None), ("a",)),
    )
    return SpikingNet(nodes, "out", (3,))


def fire_of(net: SpikingNet) -> Fire:
    op = net["a"].op
    assert isinstance(op, Fire)
    return op


@given(seeds, st.booleans(), st.integers(1, 7))
def test_charge_is_conserved_with_step_biases_and_signed_spikes(seed: int, signed: bool, steps: int) -> None:
    net, x = layer(seed, signed=signed), dyadic(seed + 9, 5, 3)
    result = simulate(net, x, steps, engine="dense")
    counts, potential = result.layers[0].neuron_by_neuron()
    linear, fire = net["w"].op, fire_of(net)
    biases = sum(fire.bias_at(t) for t in range(1, steps + 1))
    assert torch.equal(potential, 0.5 + steps * linear(x) + biases - counts)


@given(seeds, st.integers(1, 9))
def test_the_last_row_stays(seed: int, chunk: int) -> None:
    """Rows that repeat the last one change nothing, however the steps are cut into chunks."""
    net, x = layer(seed), dyadic(seed + 9, 5, 3)
    fire = fire_of(net)
    longer = replace(fire, step_bias=torch.cat([fire.step_bias, fire.step_bias[-1:].repeat(6, 1)]))
    other = replace(net, nodes=tuple(replace(n, op=longer) if n.name == "a" else n for n in net.nodes))
    assert torch.equal(
        simulate(net, x, 9, engine="dense").logits, simulate(other, x, 9, engine="dense", chunk=chunk).logits
    )


@given(seeds)
def test_a_constant_step_bias_is_a_bias(seed: int) -> None:
    net, x = layer(seed, rows=1), dyadic(seed + 9, 5, 3)
    linear, fire = net["w"].op, fire_of(net)
    moved = {"w": replace(linear, bias=linear.bias + fire.step_bias[0]), "a": replace(fire, step_bias=None)}
    plain = replace(net, nodes=tuple(replace(n, op=moved.get(n.name, n.op)) for n in net.nodes))
    assert torch.equal(simulate(net, x, 12, engine="dense").logits, simulate(plain, x, 12, engine="dense").logits)


@given(seeds)
def test_weight_normalisation_keeps_step_biases(seed: int) -> None:
    net, x = layer(seed), dyadic(seed + 9, 5, 3)
    fire = fire_of(net)
    double = replace(fire, threshold=fire.threshold * 2, start=fire.start * 2)
    net = replace(net, nodes=tuple(replace(n, op=double) if n.name == "a" else n for n in net.nodes))
    assert torch.equal(
        simulate(net, x, 8, engine="dense").logits, simulate(normalise_weights(net), x, 8, engine="dense").logits
    )


@given(seeds)
def test_the_sum_of_signed_spikes_is_never_negative(seed: int) -> None:
    potential, sent = torch.zeros(6), torch.zeros(6)
    for now in dyadic(seed, 30, 6, low=-16, high=16):
        spikes = signed_integrate_and_fire_(potential, now, 1.0, sent)
        sent += spikes
        assert set(spikes.tolist()) <= {-1.0, 0.0, 1.0}
        assert float(sent.min()) >= 0.0


def test_a_signed_neuron_takes_back_what_it_sent_too_early() -> None:
    """Two currents, +1 then -2: the plain neuron keeps its spike, the signed one withdraws it."""
    for step, left in ((integrate_and_fire_, 1.0), (signed_integrate_and_fire_, 0.0)):
        potential, sent = torch.zeros(1), torch.zeros(1)
        for now in (1.0, -2.0):
            more = (sent,) if step is signed_integrate_and_fire_ else ()
            sent = sent + step(potential, torch.tensor([now]), 1.0, *more)
        assert sent.item() == left


@given(seeds)
def test_without_inhibition_signed_and_plain_neurons_are_the_same(seed: int) -> None:
    plain, signed, sent = torch.zeros(6), torch.zeros(6), torch.zeros(6)
    for now in dyadic(seed, 20, 6, low=0, high=12):
        spikes = signed_integrate_and_fire_(signed, now, 1.0, sent)
        sent += spikes
        assert torch.equal(spikes, integrate_and_fire_(plain, now, 1.0))
    assert torch.equal(plain, signed)


def test_both_are_kept_in_the_file(tmp_path: Path) -> None:
    net = layer(3, signed=True)
    assert load(save(net, tmp_path / "net.safetensors")).same_as(net)


def test_the_file_of_a_plain_network_does_not_mention_them() -> None:
    fire = Fire(torch.ones(1), torch.zeros(1))
    assert fire.settings() == {}
    assert set(fire.tensors()) == {"threshold", "start"}


@pytest.mark.parametrize("shape", [(3, 5), (0, 4), (3, 2, 4)])
def test_step_biases_of_another_shape_are_refused_when_loaded(tmp_path: Path, shape: tuple[int, ...]) -> None:
    net = layer(3)
    wrong = replace(fire_of(net), step_bias=torch.zeros(shape))
    bad = replace(net, nodes=tuple(replace(n, op=wrong) if n.name == "a" else n for n in net.nodes))
    path = save(bad, tmp_path / "net.safetensors")
    with pytest.raises(FileFormatError, match="do not make a spiking network"):
        load(path)


def test_a_chunk_begins_at_the_right_row() -> None:
    net, x = layer(5), dyadic(9, 5, 3)
    whole, cut = DenseSimulation(net, x), DenseSimulation(net, x)
    whole.advance(6)
    cut.advance(2)
    cut.advance(4)
    assert torch.equal(whole.result().logits, cut.result().logits)
