"""Diagnosis: figures that are right, findings that are measured, words that name the layer and the way out."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

from builders import image_set, tiny_cnn
from ratenorm import Fixed, MaxNorm, Override, Stage1, convert, train_accuracy
from ratenorm.convert.convert import Conversion
from ratenorm.diagnose import diagnose
from ratenorm.diagnose.hybrid import analog_run, currents_at_rest, original, outputs
from ratenorm.errors import UsageError
from ratenorm.graph.net import run
from ratenorm.simulate.dense import analog_rates
from ratenorm.simulate.simulate import simulate

DATA = image_set(90, seed=3)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(5)
    network = tiny_cnn(nn.ReLU, channels=4)
    train_accuracy(network, DATA, Stage1(epochs=10, batch_size=10, lr=0.05, holdout=0), show=False)
    return network


def conversion(model: nn.Module, method: object, v0: float = 0.0) -> Conversion:
    return convert(model, method, example=DATA.images[:1], calibration=DATA.images, v0=v0)  # type: ignore[arg-type]


def test_a_healthy_network_has_nothing_to_mend(model: nn.Module) -> None:
    found = diagnose(conversion(model, MaxNorm(), 0.5), DATA.images, DATA.labels, steps=200)
    assert found.findings == ()
    assert "Nothing to mend" in str(found)
    assert found.measure == "accuracy"
    for layer in found.layers:
        assert layer.slope == pytest.approx(1.0, abs=0.05)
        assert layer.correlation == pytest.approx(1.0, abs=0.01)
        assert layer.k < 0.01


def test_a_threshold_that_is_too_high_is_found_to_be_slow(model: nn.Module) -> None:
    slow = Override(MaxNorm(), (("5", Fixed(1000.0)),))
    found = diagnose(conversion(model, slow), DATA.images, DATA.labels, steps=8)
    assert found.snn_accuracy < found.ann_accuracy - 0.2
    worst = next(f for f in found.findings if f.layer is not None)
    assert worst.layer == "5"
    assert "Layer '5' costs" in worst.text
    assert "v0 = 0.5" in worst.remedy
    figures = {layer.name: layer for layer in found.layers}
    assert figures["5"].dead > 0.9
    assert figures["5"].slope < 0.5


def test_a_threshold_that_is_too_low_is_found_to_cut_off(model: nn.Module) -> None:
    low = Override(MaxNorm(), (("5", Fixed(1e-3)),))
    found = diagnose(conversion(model, low), DATA.images, DATA.labels, steps=32)
    clipping = [f for f in found.findings if "cut off" in f.text]
    assert clipping
    assert clipping[0].layer == "5"
    assert "higher threshold" in clipping[0].remedy
    assert found.analog_accuracy < found.ann_accuracy
    assert {layer.name: layer for layer in found.layers}["5"].saturated > 0.3


def test_the_start_potential_and_more_steps_are_tried(model: nn.Module) -> None:
    found = diagnose(conversion(model, MaxNorm()), DATA.images, DATA.labels, steps=2)
    texts = " ".join(f.text for f in found.findings)
    assert "half the threshold" in texts or "Twice the steps" in texts
    costs = [abs(f.cost) for f in found.findings if f.cost is not None]
    assert costs == sorted(costs, reverse=True)


def test_without_labels_agreement_is_measured(model: nn.Module) -> None:
    found = diagnose(conversion(model, MaxNorm()), DATA.images, steps=8)
    assert found.measure == "agreement with the ANN"
    assert found.ann_accuracy == 1.0


def test_it_goes_to_json_and_to_words(model: nn.Module) -> None:
    found = diagnose(conversion(model, MaxNorm()), DATA.images[:6], DATA.labels[:6], steps=3)
    entry = json.loads(json.dumps(found.to_json("max"), allow_nan=False))
    assert entry["run"] == "max"
    assert [layer["name"] for layer in entry["layers"]] == ["2", "5"]
    assert "6 images, T = 3" in str(found)
    assert "slope" in str(found)


def test_silent_layers_have_no_figures_instead_of_wrong_ones(model: nn.Module) -> None:
    found = diagnose(conversion(model, Fixed(1e6)), DATA.images[:4], DATA.labels[:4], steps=2)
    assert {layer.correlation for layer in found.layers} == {None}
    assert {layer.first_spike for layer in found.layers} == {None}
    assert "-" in str(found)


@pytest.mark.parametrize(("images", "steps"), [(DATA.images[:0], 4), (DATA.images[:2], 0)], ids=["images", "steps"])
def test_nothing_to_measure_on_is_refused(model: nn.Module, images: torch.Tensor, steps: int) -> None:
    with pytest.raises(UsageError, match=r"at least one is needed|at least 1"):
        diagnose(conversion(model, MaxNorm()), images, None, steps=steps)


def test_hybrids_lie_between_the_ann_and_the_spiking_network(model: nn.Module) -> None:
    made, x = conversion(model, MaxNorm()), DATA.images[:20]
    rates = analog_rates(made.net, x)
    spiking = simulate(made.net, x, 4, engine="dense").logits[-1].argmax(-1)
    assert torch.equal(outputs(made.net, x, rates, [], 4).argmax(-1), spiking)
    analog = run(made.net, x).argmax(-1)
    assert torch.equal(outputs(made.net, x, rates, ["2", "5"], 4).argmax(-1), analog)
    with torch.no_grad():
        torch.testing.assert_close(original(made.analog, x), model(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(analog_run(made.net, x), run(made.net, x))
    low = conversion(model, Override(MaxNorm(), (("5", Fixed(1e-3)),)))
    torch.testing.assert_close(analog_run(low.net, x, {"5"}), original(low.analog, x), rtol=1e-3, atol=1e-3)


def test_the_current_at_rest_is_the_bias_in_thresholds(model: nn.Module) -> None:
    made = conversion(model, Override(MaxNorm(), (("5", Fixed(0.5)),)))
    expected = float((model[4].bias.detach() / 0.5).square().mean().sqrt())
    assert currents_at_rest(made.net) == {"5": pytest.approx(expected, rel=1e-2)}  # on a grid; "2" sees the image
    figures = {layer.name: layer.rest for layer in diagnose(made, DATA.images[:4], steps=2).layers}
    assert figures == {"2": None, "5": pytest.approx(expected, rel=1e-2)}


def test_a_layer_that_its_biases_drive_ahead_is_told_so(model: nn.Module) -> None:
    pushed = copy.deepcopy(model)
    with torch.no_grad():
        pushed[4].bias += 40.0
    slow = diagnose(conversion(pushed, Override(MaxNorm(), (("5", Fixed(100.0)),))), DATA.images, steps=8)
    quiet = diagnose(conversion(model, Override(MaxNorm(), (("5", Fixed(1000.0)),))), DATA.images, steps=8)
    told, untold = (next(f for f in found.findings if f.layer == "5") for found in (slow, quiet))
    assert "its biases alone drive it, with 0.4 thresholds a step" in told.text
    assert "--rest" in told.remedy
    assert "biases" not in untold.text
    assert "--rest" not in untold.remedy


def test_whatever_sees_the_image_has_no_current_at_rest() -> None:
    torch.manual_seed(1)
    pooled = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(27, 5), nn.ReLU(), nn.Linear(5, 3)
    ).eval()
    assert list(currents_at_rest(conversion(pooled, MaxNorm()).net)) == ["5"]
    exact = convert(pooled.double(), MaxNorm(), example=DATA.images[:1].double(), calibration=DATA.images.double())
    assert diagnose(exact, DATA.images[:4].double(), steps=2).images == 4
