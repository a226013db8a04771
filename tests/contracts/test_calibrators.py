"""One suite that every calibrator passes. A new calibrator is added to `CALIBRATORS` and nowhere else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from builders import randomise_batch_norm_, tiny_cnn, tiny_mlp
from ratenorm.calibrators import Calibrator, ChannelBias, StartPotential, StepBias, calibrate
from ratenorm.calibrators.base import from_json, parse, registry
from ratenorm.calibrators.walk import Walk
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import Conversion, convert
from ratenorm.convert.thresholds import EqualOmega, MaxNorm
from ratenorm.core.rate_norm import RateNorm
from ratenorm.errors import CalibrationError, UsageError
from ratenorm.graph.net import run
from ratenorm.graph.ops import Fire
from ratenorm.simulate.simulate import simulate

CALIBRATORS: dict[str, Calibrator] = {
    "step bias": StepBias(),
    "step bias in small moves": StepBias(rate=0.2, repeats=12),
    "channel bias": ChannelBias(),
    "start potential": StartPotential(),
}
each = pytest.mark.parametrize("name", CALIBRATORS)
STEPS = 4


def residual() -> nn.Module:
    """A residual stream that several layers read, with a max-pool and a Rate Norm layer."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6))
            self.first, self.second = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
            self.pool, self.head, self.site = nn.MaxPool2d(2), nn.Linear(6 * 16, 3), RateNorm()
            self.site.running_max.fill_(2.0)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            x = x + self.first(torch.relu(x))
            x = x + self.second(self.site(x))
            return self.head(self.pool(torch.relu(x)).flatten(1))

    torch.manual_seed(1)
    return randomise_batch_norm_(Net()).eval()


NETWORKS = {"cnn": tiny_cnn, "mlp": tiny_mlp, "residual": residual}


def converted(kind: str = "cnn", images: int = 120) -> tuple[Conversion, Tensor]:
    torch.manual_seed(0)
    model = NETWORKS[kind]()
    x = torch.rand(images, 6) if kind == "mlp" else torch.rand(images, 1, 8, 8)
    return convert(model, EqualOmega(1.6), example=x[:1], calibration=x, v0=0.5), x


def mean_gap(conversion: Conversion, x: Tensor, steps: int) -> float:
    """How far each channel's mean rate is from its mean activation, in spikes a step: the mean over all channels."""
    walk, gaps = Walk(conversion, x, steps), []
    for population in walk.populations():
        rate = population.run(population.fire).double() / (len(x) * steps)
        gaps.append(population.by_channel(population.target - rate).abs().flatten())
    return float(torch.cat(gaps).mean())


@each
def test_json_and_words_and_back(name: str) -> None:
    method = CALIBRATORS[name]
    assert from_json(json.loads(json.dumps(method.to_json()))) == method
    settings = [str(v) for k, v in method.to_json().items() if k != "method"]
    assert parse(":".join([method.label, *settings])) == method


@each
def test_it_names_its_paper_and_what_happens_afterwards(name: str) -> None:
    method = CALIBRATORS[name]
    assert method.papers
    assert method.after
    assert registry()[method.label] is type(method)


@each
@pytest.mark.parametrize("kind", NETWORKS)
def test_rates_come_nearer_to_activations(name: str, kind: str) -> None:
    conversion, x = converted(kind)
    assert mean_gap(calibrate(conversion, x, STEPS, CALIBRATORS[name]), x, STEPS) < mean_gap(conversion, x, STEPS)


@each
def test_what_is_given_stays_as_it_was(name: str) -> None:
    conversion, x = converted()
    before = conversion.net.map_tensors(torch.clone)
    done = calibrate(conversion, x, STEPS, CALIBRATORS[name])
    assert conversion.net.same_as(before)
    assert conversion.calibrated == ()
    assert [c.to_json()["method"] for c in done.calibrated] == [CALIBRATORS[name].label]
    assert done.calibrated[0].images == len(x)


@each
@pytest.mark.parametrize("kind", NETWORKS)
def test_neither_order_nor_batches_of_the_images_matter(name: str, kind: str) -> None:
    conversion, x = converted(kind)
    one = calibrate(conversion, x, STEPS, CALIBRATORS[name])
    other = calibrate(conversion, Calibration(x[torch.randperm(len(x))], batch_size=7), STEPS, CALIBRATORS[name])
    assert one.net.same_as(other.net)


@each
def test_calibrators_follow_one_another(name: str) -> None:
    conversion, x = converted()
    twice = calibrate(calibrate(conversion, x, 2, ChannelBias()), x, STEPS, CALIBRATORS[name])
    assert [c.steps for c in twice.calibrated] == [2, STEPS]
    assert torch.isfinite(simulate(twice.net, x[:4], 6, engine="dense").logits).all()


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_walk_spikes_as_the_dense_engine_does(kind: str) -> None:
    conversion, x = converted(kind, images=70)  # two chunks
    result = simulate(conversion.net, x, STEPS, engine="dense")
    for population, layer in zip(Walk(conversion, x, STEPS).populations(), result.layers, strict=True):
        counts, _ = layer.neuron_by_neuron()
        assert torch.equal(population.run(population.fire), counts.sum(0).long()), layer.name


@pytest.mark.parametrize("signed", [False, True])
def test_the_walk_knows_step_biases_and_signed_spikes(signed: bool) -> None:
    conversion, x = converted()
    net = calibrate(conversion, x, STEPS, StepBias()).net
    if signed:
        nodes = tuple(replace(n, op=replace(n.op, signed=True)) if isinstance(n.op, Fire) else n for n in net.nodes)
        net = replace(net, nodes=nodes)
    conversion = replace(conversion, net=net)
    result = simulate(net, x, STEPS, engine="dense")
    for population, layer in zip(Walk(conversion, x, STEPS).populations(), result.layers, strict=True):
        counts, _ = layer.neuron_by_neuron()
        assert torch.equal(population.run(population.fire), counts.sum(0).long()), layer.name


def test_targets_are_the_mean_activations_of_the_source_network() -> None:
    conversion, x = converted("residual")
    found: dict[str, Tensor] = {}
    run(conversion.analog, x, lambda node, value: found.setdefault(node.name, value))
    for population in Walk(conversion, x, 1).populations():
        rate = found[population.name].double().mean(0) / conversion.scales[population.name].amplitude
        assert torch.allclose(population.target, rate.double(), atol=1e-6)
        population.run(population.fire)


def test_the_limit_of_step_biases_is_that_of_the_network_without_them() -> None:
    conversion, x = converted()
    calibrated = calibrate(conversion, x, STEPS, StepBias())
    assert torch.equal(run(calibrated.net, x), run(conversion.net, x))
    far = [simulate(c.net, x[:10], 3000, engine="dense").logits[-1] for c in (calibrated, conversion)]
    assert float((far[0] - far[1]).abs().max()) < 0.02


def test_kept_values_are_dropped_when_nobody_needs_them() -> None:
    conversion, x = converted("cnn")
    walk = Walk(conversion, x, STEPS)
    for population in walk.populations():
        population.run(population.fire)
    last = conversion.net.populations[-1].name
    assert {name for name, _, _ in walk._kept} == {last}


def test_the_same_for_the_max_norm_started_at_zero() -> None:
    torch.manual_seed(0)
    x = torch.rand(60, 1, 8, 8)
    conversion = convert(tiny_cnn(), MaxNorm(), example=x[:1], calibration=x)
    assert mean_gap(calibrate(conversion, x, STEPS), x, STEPS) < mean_gap(conversion, x, STEPS)


@pytest.mark.parametrize(
    ("steps", "images", "said"),
    [
        (0, torch.rand(9, 1, 8, 8), "steps is 0"),
        (2.0, torch.rand(9, 1, 8, 8), "steps is 2.0"),
        (True, torch.rand(9, 1, 8, 8), "steps is True"),
        (5000, torch.rand(9, 1, 8, 8), "1 to 1024"),
        (4, torch.rand(9, 1, 9, 9), "the network takes"),
        (4, torch.arange(9), "looks like labels"),
        (4, torch.full((9, 1, 8, 8), torch.nan), "NaN"),
        (4, torch.rand(0, 1, 8, 8), "no image"),
    ],
)
def test_wrong_use_is_explained_before_any_work(steps: int, images: Tensor, said: str) -> None:
    conversion, _ = converted()
    with pytest.raises((UsageError, CalibrationError), match=said):
        calibrate(conversion, images, steps)


def test_images_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratenorm.calibrators.walk.available_memory", lambda: 10_000)
    conversion, x = converted()
    with pytest.raises(CalibrationError, match="images or fewer, or fewer steps"):
        calibrate(conversion, x, STEPS)


@pytest.mark.parametrize("text", ["step", "step-bias:x", "step-bias:0", "step-bias:0.4:6:7", "channel-bias:1"])
def test_wrong_words_are_explained(text: str) -> None:
    with pytest.raises(UsageError, match=r"calibrator|step biases"):
        parse(text)
