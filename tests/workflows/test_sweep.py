"""The fastest network within a given loss."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from builders import image_set, set_maxima_, tiny_cnn
from ratenorm import EqualOmega, Latency, MaxNorm, RateNorm, Scaled, Stage1, Trained, train_accuracy
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.errors import CalibrationError, UsageError
from ratenorm.io.run_folder import RunFolder
from ratenorm.simulate.simulate import simulate
from ratenorm.workflows import sweep, sweep_parts
from ratenorm.workflows.fingerprint import of_graph
from ratenorm.workflows.resume import PARTS

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
    monkeypatch.setattr(sweep, "OMEGAS", ())


def fastest(
    model: nn.Module,
    max_loss: float,
    steps: int,
    labels: bool = True,
    folder: RunFolder | None = None,
    images: torch.Tensor = DATA.images,
    held_out: torch.Tensor = HELD_OUT.images,
) -> sweep.Sweep:
    graph, report = lower(model, DATA.images[:1])
    given = HELD_OUT.labels if labels else None
    return sweep.fastest(
        fold(graph), report, Calibration(images), held_out, given, max_loss, steps, engine="dense", folder=folder
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


def test_the_candidates(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    relu, _ = lower(model, DATA.images[:1])
    rate, _ = lower(set_maxima_(tiny_cnn(RateNorm), DATA.images), DATA.images[:1])
    monkeypatch.setattr(sweep, "OMEGAS", (2.0,))
    assert sweep.candidates(relu) == [*(Scaled(MaxNorm(), f) for f in (1.0, 0.5, 0.01)), EqualOmega(2.0)]
    assert sweep.candidates(rate)[0] == Trained()


def test_what_cannot_be_reached_is_said(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="must not be negative"):
        fastest(model, -1.0, 4)
    monkeypatch.setattr(sweep, "FACTORS", (1000.0,))
    with pytest.raises(CalibrationError, match=r"no setting comes within 1\.0 points .*Allow more steps"):
        fastest(model, 1.0, 2)


class Counting:
    """Counts what a sweep really does, and stops it (as Ctrl-C would) before its `stop_at`-th piece of work."""

    def __init__(self, patch: pytest.MonkeyPatch, stop_at: int | None = None) -> None:
        self.done: list[str] = []
        self.stop_at = stop_at
        for name in ("simulate", "convert_graph"):
            patch.setattr(sweep_parts, name, self._counted(name, getattr(sweep_parts, name)))

    def _counted(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if len(self.done) == self.stop_at:
                raise KeyboardInterrupt
            self.done.append(name)
            return work(*arguments, **options)

        return counted


def answer(found: sweep.Sweep) -> tuple[Any, ...]:
    return found.candidates, found.chosen, found.steps, found.ann_accuracy, of_graph(found.best.net), found.front


WORK = ["convert_graph", "simulate", "simulate"] * 4  # three factors and one lambda, each with two starts


@pytest.mark.parametrize("stop_at", range(len(WORK) + 1))
def test_a_sweep_stopped_anywhere_loses_nothing_it_had_finished(
    stop_at: int, model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "LAMBDAS", (0.1,))
    monkeypatch.setattr(sweep, "OMEGAS", ())
    monkeypatch.setattr(sweep, "Latency", partial(Latency, steps=2))
    unbroken = answer(fastest(model, 5.0, 6))
    with monkeypatch.context() as patch, RunFolder(tmp_path) as folder:
        first = Counting(patch, stop_at)
        with contextlib.suppress(KeyboardInterrupt):
            fastest(model, 5.0, 6, folder=folder)
    assert first.done == WORK[:stop_at]
    with monkeypatch.context() as patch, RunFolder(tmp_path, "resume" if stop_at else "new") as folder:
        second = Counting(patch)
        found = fastest(model, 5.0, 6, folder=folder)
    assert answer(found) == unbroken
    assert second.done == WORK[stop_at:]


def test_finished_settings_answer_for_what_they_were_measured_on_and_nothing_else(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight[0, 0, 0, 0] += 0.25
    both, accuracies = ["convert_graph", "simulate", "simulate"] * 3, ["simulate"] * 6
    changes: list[tuple[list[str], dict[str, Any]]] = [
        (both, {}),
        ([], {}),
        ([], {"max_loss": 40.0}),
        (both, {"model": other}),
        (both, {"images": DATA.images.flip(0) * 0.5}),
        (accuracies, {"steps": 7}),
        (accuracies, {"held_out": HELD_OUT.images.flip(0)}),
    ]
    with RunFolder(tmp_path) as folder:
        for expected, change in changes:
            given: dict[str, Any] = {"model": model, "max_loss": 100.0, "steps": 6, **change}
            with monkeypatch.context() as patch:
                counted = Counting(patch)
                found = fastest(**given, folder=folder)
            assert counted.done == expected, change
            assert answer(found) == answer(fastest(**given))


def test_a_damaged_part_is_found_out_again(model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunFolder(tmp_path) as folder:
        whole = answer(fastest(model, 5.0, 6, folder=folder))
        for i, part in enumerate(sorted((tmp_path / PARTS).iterdir())):
            text = part.read_text()
            last = max(text.rindex(digit) for digit in "0123456789" if digit in text[: text.index("sha256")])
            part.write_text(text[:last] + str(9 - int(text[last])) + text[last + 1 :] if i % 2 else text[:last])
        with monkeypatch.context() as patch:
            counted = Counting(patch)
            assert answer(fastest(model, 5.0, 6, folder=folder)) == whole
        assert "simulate" in counted.done
        assert "convert_graph" in counted.done
