"""The fastest network within a given loss."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from builders import image_set, set_maxima_, tiny_cnn
from ratenorm import MaxNorm, RateNorm, Scaled, Stage1, Trained, train_accuracy
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.engines.simulate import simulate
from ratenorm.errors import CalibrationError, UsageError
from ratenorm.experiments import sweep

DATA = image_set(60, seed=4)
HELD_OUT = image_set(30, seed=5)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(5)
    network = tiny_cnn(nn.ReLU, channels=4)
    train_accuracy(network, DATA, Stage1(epochs=10, batch_size=10, lr=0.05, holdout=0), show=False)
    return network


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "FACTORS", (1.0, 0.5, 0.01))
    monkeypatch.setattr(sweep, "LAMBDAS", ())


def fastest(model: nn.Module, max_loss: float, steps: int, labels: bool = True) -> sweep.Sweep:
    graph, report = lower(model, DATA.images[:1])
    given = HELD_OUT.labels if labels else None
    return sweep.fastest(
        fold(graph), report, Calibration(DATA.images), HELD_OUT.images, given, max_loss, steps, engine="dense"
    )


@pytest.mark.parametrize("labels", [True, False])
def test_it_arrives_and_stays_within_the_loss(model: nn.Module, labels: bool) -> None:
    found = fastest(model, 2.0, 24, labels)
    accuracy = found.chosen.accuracy
    assert min(accuracy[found.steps - 1 :]) >= found.ann_accuracy - 0.02
    # no other setting arrives sooner
    for other in found.candidates:
        assert found.steps == 1 or min(other.accuracy[found.steps - 2 :]) < found.ann_accuracy - 0.02
    again = simulate(found.best.net, HELD_OUT.images, 24, engine="dense").logits.argmax(-1)
    truth = HELD_OUT.labels if labels else model(HELD_OUT.images).argmax(-1)
    assert (again == truth).double().mean(1).tolist() == list(accuracy)
    assert found.best.v0 == found.chosen.v0
    assert found.best.method == found.chosen.method


def test_the_front_rises(model: nn.Module) -> None:
    found = fastest(model, 5.0, 16)
    steps, accuracies = [p["steps"] for p in found.front], [p["accuracy"] for p in found.front]
    assert steps == sorted(set(steps))
    assert accuracies == sorted(set(accuracies))
    assert accuracies[-1] == max(max(c.accuracy) for c in found.candidates)
    for point in found.front:
        assert point["accuracy"] == max(c.accuracy[point["steps"] - 1] for c in found.candidates)
        assert point["name"] in str(found)
    assert f"after {found.steps} steps" in str(found)


def test_trained_thresholds_are_among_the_candidates(model: nn.Module) -> None:
    relu, _ = lower(model, DATA.images[:1])
    rate, _ = lower(set_maxima_(tiny_cnn(RateNorm), DATA.images), DATA.images[:1])
    assert sweep.candidates(relu) == [Scaled(MaxNorm(), f) for f in (1.0, 0.5, 0.01)]
    assert sweep.candidates(rate)[0] == Trained()


def test_what_cannot_be_reached_is_said(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="must not be negative"):
        fastest(model, -1.0, 4)
    monkeypatch.setattr(sweep, "FACTORS", (1000.0,))
    with pytest.raises(CalibrationError, match=r"no setting comes within 1\.0 points .*Allow more steps"):
        fastest(model, 1.0, 2)
