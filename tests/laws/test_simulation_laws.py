"""Laws of the dense engine: layer-wise = step-wise, Theorem 1, max-pooling by accumulated counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from builders import chain, dyadic, fire, make_dyadic_, tiny_conversion
from random_networks import Recipe, recipes
from ratenorm.convert.convert import convert, normalise_weights, with_start
from ratenorm.convert.thresholds import Fixed, MaxNorm
from ratenorm.errors import CalibrationError, SimulationError, UsageError
from ratenorm.graph.net import SpikingNet, run
from ratenorm.graph.ops import AvgPool, Conv, Fire, Linear, MaxPool, Reshape
from ratenorm.simulate.dense import DenseSimulation, analog_rates
from ratenorm.simulate.result import SimResult
from ratenorm.simulate.simulate import simulate, stream

seeds = st.integers(0, 10**6)


def dyadic_net(seed: int, thresholds: tuple[float, float] = (1.0, 0.5)) -> SpikingNet:
    """Convolution, pool, convolution, linear: every number a multiple of a power of two, so every sum is exact."""
    return chain(
        (2, 4, 4),
        ("conv1", Conv(dyadic(seed, 3, 2, 3, 3), dyadic(seed + 1, 3), padding=(1, 1, 1, 1))),
        ("fire1", fire(thresholds[0])),
        ("pool", AvgPool((2, 2), (2, 2), (0, 0))),
        ("conv2", Conv(dyadic(seed + 2, 4, 3, 1, 1), dyadic(seed + 3, 4))),
        ("fire2", fire(thresholds[1])),
        ("flat", Reshape((16,))),
        ("out", Linear(dyadic(seed + 4, 3, 16), dyadic(seed + 5, 3))),
    )


def same(a: SimResult, b: SimResult) -> bool:
    if not torch.equal(a.logits, b.logits):
        return False
    return all(
        torch.equal(x.counts, y.counts)
        and torch.equal(x.spikes, y.spikes)
        and torch.equal(x.synaptic_ops, y.synaptic_ops)
        and torch.equal(x.potential, y.potential)
        and (x.first_spike is None) == (y.first_spike is None)
        and (x.first_spike is None or torch.equal(x.first_spike, y.first_spike))
        and (x.fit is None or torch.equal(x.fit.error, y.fit.error))
        for x, y in zip(a.layers, b.layers, strict=True)
    )


@given(seeds, st.integers(1, 24), st.integers(1, 30))
def test_layer_by_layer_equals_step_by_step(seed: int, steps: int, chunk: int) -> None:
    net, x = dyadic_net(seed), dyadic(seed + 9, 3, 2, 4, 4, low=0)
    by_step = simulate(net, x, steps, engine="dense", chunk=1, fit=True, first_spikes=True)
    by_layer = simulate(net, x, steps, engine="dense", chunk=chunk, fit=True, first_spikes=True)
    assert by_step.steps == steps
    assert same(by_step, by_layer)


@settings(max_examples=15)
@given(recipes(), st.integers(2, 16))
def test_chunks_do_not_change_random_networks(recipe: Recipe, chunk: int) -> None:
    try:
        net = convert(recipe.build(), MaxNorm(), example=recipe.images(1), calibration=recipe.images()).net
    except CalibrationError:
        return
    x = recipe.images(3)
    a, b = (simulate(net, x, 16, engine="dense", chunk=c) for c in (1, chunk))
    # a batched convolution may round differently; a spike that tips over moves the mean output by little
    assert float((a.logits[-1] - b.logits[-1]).abs().max()) <= 0.1 * float(a.logits[-1].abs().max()) + 1e-3


@given(seeds)
def test_the_engine_equals_eq_3_written_out(seed: int) -> None:
    """The whole network step by step with nothing but torch and the neuron's equations."""
    net, x = dyadic_net(seed), dyadic(seed + 9, 2, 2, 4, 4, low=0)
    v1, v2, total = torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 2, 2), torch.zeros(2, 3)
    counts = torch.zeros_like(v2)
    result = simulate(net, x, 9, engine="dense")
    for t in range(9):
        v1 = v1 + net["conv1"].op(x)
        s1 = (v1 >= 1.0).float()
        v1 = v1 - s1
        v2 = v2 + net["conv2"].op(torch.nn.functional.avg_pool2d(s1, 2))
        s2 = (v2 >= 0.5).float()
        v2 = v2 - 0.5 * s2
        counts += s2
        total += net["out"].op(s2.flatten(1))
        torch.testing.assert_close(result.logits[t], total / (t + 1), rtol=1e-6, atol=1e-6)
    assert torch.equal(result.layers[1].counts, counts)
    assert torch.equal(result.layers[1].potential, v2)


@given(seeds, st.sampled_from([0.25, 0.5, 1.0, 2.0]), st.sampled_from([0.25, 1.0, 4.0]), st.sampled_from([0.0, 0.5]))
def test_theorem_1_weight_normalisation_gives_the_same_spikes(
    seed: int, first: float, second: float, v0: float
) -> None:
    """Balanced thresholds and unit thresholds with normalised weights: spike for spike, on dyadic weights."""
    balanced = with_start(dyadic_net(seed, (first, second)), v0)
    normalised = normalise_weights(balanced)
    assert all(bool((n.op.threshold == 1.0).all()) for n in normalised.populations if isinstance(n.op, Fire))
    x = dyadic(seed + 9, 2, 2, 4, 4, low=0)
    a, b = DenseSimulation(balanced, x), DenseSimulation(normalised, x)
    for _ in range(12):
        torch.testing.assert_close(a.advance(1), b.advance(1), rtol=0, atol=0)
        for name in a.populations:
            assert torch.equal(a.populations[name].counts, b.populations[name].counts)


@given(seeds, st.sampled_from([0.5, 2.0]))
def test_theorem_1_the_other_way(seed: int, factor: float) -> None:
    """From unit thresholds: weights and threshold of a layer times a factor, the same spikes."""
    net, x = dyadic_net(seed, (1.0, 1.0)), dyadic(seed + 9, 2, 2, 4, 4, low=0)
    conv = net["conv2"].op
    assert isinstance(conv, Conv)
    assert conv.bias is not None
    scaled = {
        "conv2": replace(conv, weight=conv.weight * factor, bias=conv.bias * factor),
        "fire2": fire(factor),
    }
    balanced = replace(net, nodes=tuple(replace(n, op=scaled.get(n.name, n.op)) for n in net.nodes))
    a, b = (simulate(n, x, 10, engine="dense") for n in (net, balanced))
    assert torch.equal(a.logits, b.logits)
    assert torch.equal(a.layers[1].counts, b.layers[1].counts)


def spike_trains(seed: int, steps: int, *shape: int) -> Tensor:
    return (dyadic(seed, steps, *shape, low=0, high=2, unit=1.0) > 1).float()


@given(seeds, st.sampled_from([(2, 2, 0, 1), (3, 2, 1, 1), (3, 1, 1, 1), (2, 1, 0, 2), (3, 3, 1, 1)]), st.booleans())
def test_max_pooling_passes_the_largest_count(seed: int, window: tuple[int, int, int, int], ceil_mode: bool) -> None:
    """At every t the spikes passed so far are the largest count of the window; binary in, binary out."""
    kernel, stride, padding, dilation = ((w, w) for w in window)
    pool = MaxPool(kernel, stride, padding, dilation, ceil_mode)
    trains = spike_trains(seed, 12, 2, 3, 7, 7)
    net = chain((3, 7, 7), ("fire", fire(1.0)), ("pool", pool))
    simulation = DenseSimulation(net, torch.zeros(2, 3, 7, 7))
    relay, passed = simulation.relays["pool"], []
    for t, train in enumerate(trains):
        out, _ = simulation._relay(relay, pool, train, 1)
        assert set(out.unique().tolist()) <= {0.0, 1.0}
        passed.append(out)
        expected = torch.nn.functional.max_pool2d(
            trains[: t + 1].sum(0), window[0], window[1], window[2], window[3], ceil_mode
        )
        assert torch.equal(torch.stack(passed).sum(0), expected)
    chunked = DenseSimulation(net, torch.zeros(2, 3, 7, 7))
    at_once, _ = chunked._relay(chunked.relays["pool"], pool, trains.flatten(0, 1), 12)
    assert torch.equal(at_once, torch.cat(passed))


def test_max_pooling_in_a_network_follows_the_largest_rate() -> None:
    net = chain((1, 4, 4), ("fire", fire(1.0)), ("pool", MaxPool((2, 2), (2, 2), (0, 0), (1, 1))))
    x = dyadic(4, 2, 1, 4, 4, low=0, high=8)
    result = simulate(net, x, 16, engine="dense")
    counts = (x * 16).floor()  # v(0) = 0, threshold 1
    assert torch.equal(result.layers[0].counts, counts)
    assert torch.equal(result.logits[-1] * 16, torch.nn.functional.max_pool2d(counts, 2).flatten(1))
    assert result.relays[0][0] == "pool"
    assert float(result.relays[0][1].sum()) == 0.0  # no synapse behind it


def test_the_first_layer_is_computed_once_under_constant_coding() -> None:
    conversion, x = tiny_conversion()
    calls = []
    first = conversion.net.nodes[1]
    assert isinstance(first.op, Conv)

    class Counted(Conv):
        def __call__(self, *inputs: Tensor) -> Tensor:
            calls.append(1)
            return super().__call__(*inputs)

    counted = Counted(**{**first.op.tensors(), "bias": first.op.bias, "padding": first.op.padding})
    net = replace(
        conversion.net, nodes=(conversion.net.nodes[0], replace(first, op=counted), *conversion.net.nodes[2:])
    )
    _ = net.fan_out
    calls.clear()
    simulate(net, x, 10, engine="dense")
    assert len(calls) == 1


def test_stream_gives_the_logits_of_every_step() -> None:
    conversion, x = tiny_conversion()
    whole = simulate(conversion.net, x, 6, engine="dense").logits
    torch.testing.assert_close(torch.stack(list(stream(conversion.net, x, 6, engine="dense"))), whole)


def test_a_simulation_can_be_continued() -> None:
    net, x = dyadic_net(1), dyadic(9, 2, 2, 4, 4, low=0)
    simulation = DenseSimulation(net, x)
    simulation.advance(3)
    simulation.advance(5)
    assert same(simulation.result(), simulate(net, x, 8, engine="dense"))


def test_figures_of_a_result() -> None:
    conversion, x = tiny_conversion()
    net = conversion.net
    result = simulate(net, x, 8, engine="dense", fit=True, first_spikes=True)
    labels = result.logits[-1].argmax(-1)
    assert result.accuracy(labels)[-1] == 1.0
    assert result.membrane_updates == sum(net.neurons.values()) * len(x)
    assert float(result.spikes_per_step.sum()) == sum(float(c.sum()) for c in result.spikes.values())
    for layer in result.layers:
        assert float((layer.counts.double() * net.fan_out[layer.name]).sum()) == float(layer.synaptic_ops.sum())
        assert torch.equal(layer.first_spike > 0, layer.counts > 0)
        assert layer.fit is not None
        rates = analog_rates(net, x)[layer.name].double()
        error = (layer.rates(8).double() - rates).square().sum()
        assert layer.fit.k[-1] == pytest.approx(float(error / rates.square().sum()), rel=1e-4)
        assert layer.fit.omega == pytest.approx(float(rates.sum() / rates.square().sum()), rel=1e-6)
    assert "12 images, 8 steps on the dense engine" in str(result)


def test_a_silent_layer_has_no_omega() -> None:
    net = chain((4,), ("fire", fire(1.0)), ("out", Linear(torch.ones(2, 4), None)))
    silent = simulate(net, torch.zeros(1, 4), 4, engine="dense", fit=True).layers[0].fit
    assert silent is not None
    assert silent.omega == float("inf")
    assert silent.k.tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("x", "options", "error", "words"),
    [
        (torch.zeros(2, 2, 4, 5), {}, SimulationError, r"\(2, 2, 4, 5\)"),
        (torch.zeros(2, 2, 4, 4, dtype=torch.uint8), {}, SimulationError, "uint8"),
        (torch.zeros(2, 2, 4, 4), {"steps": 0}, UsageError, "steps is 0"),
        (torch.zeros(2, 2, 4, 4), {"chunk": 0}, UsageError, "chunk is 0"),
        (torch.zeros(2, 2, 4, 4), {"engine": "quantum"}, UsageError, "'quantum'"),
    ],
    ids=["shape", "type", "steps", "chunk", "engine"],
)
def test_what_cannot_be_simulated_is_refused(x: Tensor, options: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        simulate(dyadic_net(0), x, **{"steps": 4, "engine": "dense", **options})


def test_clipped_ann_is_what_the_rates_converge_to() -> None:
    model = make_dyadic_(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), 1)
    net = convert(model, Fixed(2.0), example=torch.zeros(1, 6)).net
    x = dyadic(3, 5, 6, low=0)
    with torch.no_grad():
        expected = model[2](model[1](model[0](x)).clamp(max=2.0))
        torch.testing.assert_close(run(net, x), expected)
    torch.testing.assert_close(simulate(net, x, 512, engine="dense").logits[-1], expected, atol=0.1, rtol=0)
