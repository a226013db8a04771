"""Quantities computed again by other means, as plainly as can be: what the rest of the suite takes for granted.

Each of these was once changed by a mutant that no other test noticed (benchmarks/mutants.py).
"""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import Tensor, nn

from builders import chain, tiny_conversion
from ratenorm import zoo
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import convert, spiking
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.convert.thresholds import Fixed, Latency, MaxNorm, ModelNorm, SpikeNorm
from ratenorm.core.energy import Cost, power, spike_energy
from ratenorm.core.losses import latency_loss, omega
from ratenorm.core.rate_norm import RateNorm, rate_norm_layers, set_p_
from ratenorm.data import Batches, ImageSet
from ratenorm.data.normalise import NORMALISATIONS
from ratenorm.graph.net import SpikingNet
from ratenorm.graph.ops import Fire, Input, Linear, MaxPool
from ratenorm.io.networks import load_network
from ratenorm.simulate.early_exit import EarlyExit, EarlyExitResult, settle_afterwards, simulate_early_exit
from ratenorm.simulate.evaluate import LayerTotals, evaluate
from ratenorm.simulate.result import LayerActivity
from ratenorm.simulate.simulate import simulate, start
from ratenorm.train.config import Stage1, Stage2
from ratenorm.train.stage1 import _optimizer
from ratenorm.train.stage2 import _LatencyStage
from strangers.architectures import shape_of, stranger


def mlp(activation: type[nn.Module] = nn.ReLU, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(4, 6), activation(), nn.Linear(6, 5), activation(), nn.Linear(5, 3)
    ).eval()  # fmt: skip


# -- Rate Norm and stage 2 ---------------------------------------------------------------------------------------------


def test_a_tenth_of_each_batch_goes_into_the_running_maximum() -> None:
    layer = RateNorm()
    layer(torch.tensor([3.0, -7.0]))
    assert float(layer.running_max) == pytest.approx(0.9 * 1.0 + 0.1 * 3.0)
    layer(torch.tensor([0.5]))
    assert float(layer.running_max) == pytest.approx(0.9 * 1.2 + 0.1 * 0.5)


def test_the_teacher_of_stage_2_is_the_network_at_p_1() -> None:
    """At every step, also when p has moved: the loss is what another copy of the network gives."""
    model = mlp(RateNorm)
    images = torch.rand(8, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.zeros(8, dtype=torch.int64)
    stage = _LatencyStage(
        model, Batches(ImageSet("x", images.view(8, 1, 2, 2), labels, ("a",)), 8), None, Stage2(lam=0.3, lr=0.5),
        torch.tensor(-0.5), "stage2",
    )  # fmt: skip
    for layer in stage.layers.values():
        layer.freeze_()
    for _ in range(4):
        p = float(stage.p_prime.detach().sigmoid())
        teacher, student = copy.deepcopy(model), copy.deepcopy(model)
        rates: list[Tensor] = []
        set_p_(teacher, 1.0)
        set_p_(student, p)
        for _, layer in rate_norm_layers(student):
            layer.register_forward_hook(lambda m, i, o, rates=rates: rates.append(o))
        with torch.no_grad():
            answers = student(images)
            wanted = latency_loss(teacher(images), answers, [omega(r) for r in rates], 0.3)
            assert not torch.allclose(teacher(images), answers, atol=1e-3)
        found = stage.step(images, labels, 0)
        assert found["loss"] == pytest.approx(float(wanted), rel=1e-4)
        assert float(stage.p_prime.detach().sigmoid()) != p


@pytest.mark.parametrize("per_layer", [False, True])
def test_the_teacher_of_latency_is_the_network_without_ceilings(per_layer: bool) -> None:
    """Without a price for Omega nothing but the teacher asks for anything, and it asks for p near 1."""
    x = torch.rand(16, 4, generator=torch.Generator().manual_seed(1))
    graph = fold(lower(mlp(), x[:1])[0])
    maxima = MaxNorm().scales(graph, Calibration([x]))
    method = Latency(lam=0.0, steps=120, lr=0.2, start=-1.0, batch_size=16, per_layer=per_layer)
    learned = method.scales(graph, Calibration([x]))
    for name, scale in learned.items():
        assert float(scale.threshold) > 0.5 * float(maxima[name].threshold)  # from sigmoid(-1) = 0.27


# -- thresholds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [nn.ReLU, RateNorm])
def test_spike_norm_takes_the_largest_current_of_a_simulation(activation: type[nn.Module]) -> None:
    """Neuron by neuron, step by step, with loops; a spike stands for the threshold, or for its share of a ceiling."""
    model = mlp(activation)
    x = torch.rand(3, 4, generator=torch.Generator().manual_seed(2))
    for layer in (m for m in model if isinstance(m, RateNorm)):
        layer.running_max.fill_(2.5)
    scales = convert(model, SpikeNorm(steps=12), example=x[:1], calibration=x).scales
    arriving = [[image.tolist() for image in x] for _ in range(12)]  # [step][image][input]
    for position, name in ((0, "1"), (2, "3")):
        weight, bias = model[position].weight.tolist(), model[position].bias.tolist()
        currents = [
            [[b + sum(w * v for w, v in zip(row, image, strict=True)) for row, b in zip(weight, bias, strict=True)]
             for image in step]
            for step in arriving
        ]  # fmt: skip
        largest = max(max(max(image) for image in step) for step in currents)
        ceiling = 2.5 if activation is RateNorm else float("inf")
        threshold = min(largest, ceiling)
        amplitude = threshold / 2.5 if activation is RateNorm else threshold
        assert float(scales[name].threshold) == pytest.approx(threshold, rel=1e-5)
        assert float(scales[name].amplitude) == pytest.approx(amplitude, rel=1e-5)
        potentials = [[0.0] * len(weight) for _ in x]
        sent: list[list[list[float]]] = []
        for step in currents:
            sent.append([])
            for potential, image in zip(potentials, step, strict=True):
                spikes = []
                for k, current in enumerate(image):
                    potential[k] += current
                    fired = potential[k] >= threshold * (1 - 1e-6)
                    potential[k] -= threshold * fired
                    spikes.append(amplitude * fired)
                sent[-1].append(spikes)
        arriving = sent


def largest_at_corners(layer: nn.Linear, low: float, high: float) -> float:
    corners = torch.tensor(list(itertools.product((low, high), repeat=layer.in_features)))
    return float(layer(corners).detach().max())


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.5, 0.5)])
def test_model_norm_is_the_largest_input_of_all_images_that_could_be(low: float, high: float) -> None:
    """The corner of the cube of all images, found by trying every one; then of all that the first layer could send."""
    model = mlp()
    scales = convert(model, ModelNorm(low, high), example=torch.rand(1, 4)).scales
    first = largest_at_corners(model[0], low, high)
    second = largest_at_corners(model[2], 0.0, first)
    assert float(scales["1"].threshold) == pytest.approx(first, rel=1e-5)
    assert float(scales["3"].threshold) == pytest.approx(second, rel=1e-5)
    x = torch.rand(50, 4) * (high - low) + low
    conversion = convert(model, ModelNorm(), example=x[:1], calibration=x)  # the images' own range
    assert float(conversion.scales["1"].threshold) == pytest.approx(
        largest_at_corners(model[0], float(x.min()), float(x.max())), rel=1e-5
    )


def test_model_norm_sees_through_scales_and_ceilings() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(3, 4)
    model = nn.Sequential(nn.Linear(2, 3), nn.Hardtanh(0.0, 0.25), linear, nn.ReLU(), nn.Linear(4, 2)).eval()

    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(-2.0 * x + 1.0)

    scales = convert(Turned(), ModelNorm(0.0, 1.0), example=torch.rand(1, 2)).scales
    first = largest_at_corners(model[0], -1.0, 1.0)
    thresholds = [float(s.threshold) for s in scales.values()]
    assert thresholds[0] == pytest.approx(min(first, 0.25), rel=1e-5)
    assert thresholds[1] == pytest.approx(largest_at_corners(linear, 0.0, min(first, 0.25)), rel=1e-5)


# -- what is reported --------------------------------------------------------------------------------------------------


def test_saturated_is_a_neuron_that_fires_in_all_steps_but_one_at_most() -> None:
    counts = torch.tensor([[10.0, 9.0, 8.0, 0.0], [10.0, 1.0, 0.0, 0.0]])
    potential = torch.tensor([[0.0, -0.5, 0.2, -1.0], [0.1, 0.0, -0.1, 0.3]])
    zeros = torch.zeros(10, dtype=torch.float64)
    layer = LayerActivity("a", 4, zeros + 2.0, zeros + 6.0, None, None, lambda: (counts, potential))
    totals = LayerTotals("a", 4, zeros.clone(), zeros.clone(), torch.zeros(20, dtype=torch.int64))
    totals.add(layer, 10)
    totals.add(layer, 10)
    assert (totals.saturated, totals.dead, totals.negative) == (6, 6, 6)
    assert totals.spikes.tolist() == [4.0] * 10
    assert totals.synaptic_ops.tolist() == [12.0] * 10
    assert {k: n for k, n in enumerate(totals.rates.tolist()) if n} == {0: 6, 2: 2, 16: 2, 18: 2, 19: 4}
    single = LayerTotals("a", 4, zeros[:1].clone(), zeros[:1].clone(), torch.zeros(20, dtype=torch.int64))
    once = LayerActivity("a", 4, zeros[:1], zeros[:1], None, None, lambda: (counts.clamp(max=1.0), potential))
    single.add(once, 1)
    assert (single.saturated, single.dead) == (5, 3)  # at T = 1 a silent neuron is dead, not saturated


def test_early_exit_reports_the_accuracy_of_the_answers_it_gave() -> None:
    """Image 0 answers at step 2, right; image 1 at step 1, wrong, and would be right at the end; image 2 at the end."""
    rule = EarlyExit("margin", (0.5, 0.5, float("-inf")), 0.0)
    logits = torch.tensor(
        [
            [[0.5, 0.4], [0.1, 0.9], [0.5, 0.4]],
            [[0.9, 0.1], [0.9, 0.1], [0.5, 0.4]],
            [[0.1, 0.9], [0.9, 0.1], [0.4, 0.5]],
        ]
    )
    labels = torch.tensor([0, 0, 1])
    found = settle_afterwards(rule, logits)
    assert found.answered_at.tolist() == [2, 1, 3]
    assert found.accuracy(labels) == pytest.approx(2 / 3)
    assert found.mean_steps == 2.0
    assert found.worst_steps == 3
    assert found.histogram.tolist() == [1, 1, 1]
    record = found.to_record(labels)
    assert record["accuracy"] == pytest.approx(2 / 3)
    assert record["thresholds"] == [0.5, 0.5]
    assert (record["mean_steps"], record["worst_steps"], record["last_step"]) == (2.0, 3, 3)
    direct = EarlyExitResult(rule, 3, torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 3]))
    assert direct.accuracy(torch.tensor([0, 0])) == 0.5


@pytest.mark.parametrize("engine", ["dense", "event"])
@pytest.mark.parametrize("name", ["vgg", "googlenet", "one_dimensional"])
def test_a_max_pool_keeps_its_state_and_counts_its_operations(name: str, engine: str) -> None:
    """Over chunks, where images leave, and added up in an evaluation; recomputed from the spikes of a plain loop."""
    x = torch.rand(6, *shape_of(name), generator=torch.Generator().manual_seed(3))
    net = convert(stranger(name), MaxNorm(), example=x[:1], calibration=x, v0=0.5).net
    whole = simulate(net, x, 13, engine=engine)
    assert whole.relays
    assert all(float(ops.sum()) > 0 for _, ops in whole.relays)
    simulation = start(net, x, engine)
    for size in (1, 4, 3, 5):
        simulation.advance(size)
    pieces = simulation.result()
    assert torch.equal(pieces.logits, whole.logits)
    for (_, one), (_, other) in zip(pieces.relays, whole.relays, strict=True):
        assert torch.equal(one, other)
    # operations: each spike that a pool passes on, times the synapses behind it
    passed = relayed(net, x, 13)
    for pool, ops in whole.relays:
        wanted = (passed[pool] * net.fan_out[pool]).flatten(1).sum(1)
        torch.testing.assert_close(ops, wanted.double(), rtol=1e-6, atol=1e-6)
    total = sum(layer.synaptic_ops for layer in whole.layers) + sum(ops for _, ops in whole.relays)
    assert torch.equal(whole.synaptic_ops, total)
    labels = torch.arange(6) % 5
    together = evaluate(net, [(x[:2], labels[:2]), (x[2:], labels[2:])], 13, engine=engine)
    assert torch.equal(together.relay_ops, sum(ops for _, ops in whole.relays))
    assert torch.equal(together.synaptic_ops, total)
    # images that answer early leave; the pools of the others go on as they were
    margins = whole.logits.topk(2, -1).values
    half = (margins[..., 0] - margins[..., 1]).median(1).values.tolist()  # reached by half of the images
    rule = EarlyExit("margin", (*[float("inf")] * 2, *half[2:12], float("-inf")), 0.0)
    early = simulate_early_exit(net, x, 13, rule, engine=engine, chunk=2)
    after = settle_afterwards(rule, whole.logits)
    assert len(after.answered_at.unique()) > 1
    assert torch.equal(early.answered_at, after.answered_at)
    assert torch.equal(early.logits, after.logits)


def test_how_rates_fit_is_summed_over_batches() -> None:
    conversion, x = tiny_conversion()
    labels = torch.zeros(len(x), dtype=torch.int64)
    whole = evaluate(conversion.net, [(x, labels)], 5)
    parts = [(x[at : at + 4], labels[at : at + 4]) for at in range(0, len(x), 4)]
    for one, other in zip(whole.layers, evaluate(conversion.net, parts, 5).layers, strict=True):
        assert one.fit is not None
        assert other.fit is not None
        torch.testing.assert_close(one.fit.error, other.fit.error)
        assert (one.fit.total, one.fit.power) == pytest.approx((other.fit.total, other.fit.power))


def relayed(net: SpikingNet, x: Tensor, steps: int) -> dict[str, Tensor]:
    """[T, …] how many images a pool passed a spike on for, from a simulation without chunks or engines."""
    state: dict[str, Tensor] = {}
    found: dict[str, list[Tensor]] = {}
    for _ in range(steps):
        values: dict[str, Tensor] = {}
        for node in net.nodes:
            given = [values[i] for i in node.inputs]
            if isinstance(node.op, Input):
                values[node.name] = x
            elif isinstance(node.op, Fire):
                before = state.get(node.name, node.op.start.expand_as(given[0]))
                charged = before + given[0]
                values[node.name] = (charged >= node.op.threshold).float()
                state[node.name] = charged - node.op.threshold * values[node.name]
            elif isinstance(node.op, MaxPool):
                seen = state.get(f"{node.name} seen", torch.zeros_like(given[0])) + given[0]
                largest = node.op(seen)
                values[node.name] = largest - state.get(f"{node.name} largest", torch.zeros_like(largest))
                state[f"{node.name} seen"], state[f"{node.name} largest"] = seen, largest
                found.setdefault(node.name, []).append((values[node.name] != 0).sum(0))
            else:
                values[node.name] = net.value(node, *given)
    return {name: torch.stack(parts) for name, parts in found.items()}


def test_the_price_of_operations() -> None:
    """Horowitz 2014, 45 nm, 32-bit floating point: an addition 0.9 pJ, a multiplication 3.7 pJ."""
    assert Cost(1.0).picojoules == pytest.approx(3.7 + 0.9)
    assert Cost(0.0, 1.0).picojoules == pytest.approx(0.9)
    assert Cost(0.0, 0.0, 1.0).picojoules == pytest.approx(0.9)
    assert Cost(2.0, 3.0, 4.0).picojoules == pytest.approx(2 * 4.6 + 7 * 0.9)
    assert power(5.0, 2.0) == pytest.approx(10_000.0)
    assert spike_energy([5.0, 7.0, 100.0], 2, 3.0) == pytest.approx(36.0)


def test_normalisations_are_those_that_the_zoo_was_trained_with() -> None:
    """And those that everybody uses, measured on the training images."""
    assert NORMALISATIONS["cifar10"].mean == (0.4914, 0.4822, 0.4465)
    assert NORMALISATIONS["cifar10"].std == (0.2470, 0.2435, 0.2616)
    assert NORMALISATIONS["cifar100"].mean == (0.5071, 0.4865, 0.4409)
    assert NORMALISATIONS["cifar100"].std == (0.2673, 0.2564, 0.2762)
    assert NORMALISATIONS["mnist"].mean == (0.1307,)
    assert NORMALISATIONS["mnist"].std == (0.3081,)
    for name in ("cnn7-mnist", "preact_resnet20-cifar10"):
        _, spec = load_network(zoo.path_of(name))
        assert spec.normalisation == NORMALISATIONS[spec.dataset]


def test_an_amplitude_goes_into_the_weights_behind() -> None:
    x = torch.rand(5, 4)
    graph = fold(lower(mlp(), x[:1])[0])
    scales = Fixed(0.5).scales(graph, None)
    net = spiking(graph, scales, v0=0.25)
    assert [float(node.op.threshold) for node in net.populations] == [0.5, 0.5]
    assert [float(node.op.start) for node in net.populations] == [0.125, 0.125]
    torch.testing.assert_close(net["2"].op.weight, 0.5 * graph["2"].op.weight, rtol=1e-3, atol=1e-4)


def test_a_negative_spike_is_a_spike_and_costs_as_much() -> None:
    """A current of +1, -1, 0 into two neurons: one spike each, taken back, each going to three targets."""
    bias = torch.tensor([[1.0], [-1.0], [0.0]])
    neurons = Fire(torch.ones(1), torch.zeros(1), step_bias=bias, signed=True)
    net = chain((2,), ("fire", neurons), ("out", Linear(torch.ones(3, 2), None)))
    found = simulate(net, torch.zeros(1, 2), 3, engine="dense")
    assert found.layers[0].spikes.tolist() == [2.0, 2.0, 0.0]
    assert found.layers[0].synaptic_ops.tolist() == [6.0, 6.0, 0.0]
    assert found.layers[0].counts.tolist() == [[0.0, 0.0]]
    assert found.logits[:, 0, 0].tolist() == [2.0, 0.0, 0.0]


def test_only_matrices_decay() -> None:
    """Weights are pulled towards zero; biases, BatchNorm and trained thresholds are not."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), RateNorm(levels=4), nn.Linear(4, 2))
    optimizer = _optimizer(model, Stage1(weight_decay=0.25))
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert {name: decays[id(p)] for name, p in model.named_parameters() if decays[id(p)]} == {
        "0.weight": 0.25,
        "3.weight": 0.25,
    }
    assert len(decays) == len(list(model.parameters()))
