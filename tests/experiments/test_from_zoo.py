"""A reproduction that begins with the zoo's networks and with the record of an earlier one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ratenorm import records
from ratenorm.data import ImageSet
from ratenorm.experiments.presets import BY_NAME
from ratenorm.experiments.reproduce import Scale, in_zoo, place_of, reproduce
from ratenorm.experiments.targets import IN_ZOO, Folders, announcement, plan, run_plan, state
from ratenorm.experiments.zoo_entries import add_to_zoo
from ratenorm.export.network import load_network, save_network

PRESET = BY_NAME["cnn7-mnist"]
NAME = "cnn7-mnist-s0-short"


@pytest.fixture(scope="module")
def stored(tiny_results: Path, tmp_path_factory: pytest.TempPathFactory, digits: dict[str, ImageSet]) -> Path:
    folder = tmp_path_factory.mktemp("zoo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratenorm.experiments.training.load", lambda name, split, root=None: digits[split])
        scale = Scale(train_images=200, test_images=20, epochs=1, steps=8)
        add_to_zoo(PRESET, 0, tiny_results / "work", folder, scale, None, 0, lambda text: None)
    return folder


def forbid(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("trained or simulated again")

    for name in names:
        monkeypatch.setattr(f"ratenorm.experiments.{name}", forbidden)


TRAINING = ("training.train_accuracy", "choosing.train_latency", "choosing.watched_evaluation")


def test_what_the_zoo_has_is_not_trained_and_gives_the_same_record(
    stored: Path, tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, *TRAINING)
    said: list[str] = []
    reproduce(PRESET, 0, tmp_path / "work", tmp_path, tiny, None, said.append, stored)
    again = records.read(tmp_path / f"{NAME}.json")
    assert [line for line in said if "the zoo has" in line] == [
        f"  the zoo has {NAME}-relu: not trained again",
        f"  the zoo has {NAME}: not trained again",
    ]
    whole = records.read(tiny_results / "results" / f"{NAME}.json")
    assert again["choice"] == whole["choice"]
    assert [run["accuracy"] for run in again["runs"]] == [run["accuracy"] for run in whole["runs"]]
    assert again["config"] == whole["config"]  # the weights, the accuracies, even the time it took to train
    here, there = (place_of(PRESET, 0, work, tiny) for work in (tmp_path / "work", tiny_results / "work"))
    for name in ("relu", "rnl", "ril"):
        assert getattr(here, name).read_bytes() == getattr(there, name).read_bytes(), name


def test_the_runs_of_a_record_of_the_same_weights_are_not_simulated_again(
    stored: Path, tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, *TRAINING, "spiking_runs.watched_evaluation")
    shutil.copy(tiny_results / "results" / f"{NAME}.json", tmp_path)
    before = records.read(tmp_path / f"{NAME}.json")
    words = (PRESET, 0, tmp_path / "work", tmp_path, tiny, None, lambda text: None, stored)
    assert reproduce(*words)["runs"] == before["runs"]
    assert records.read(tmp_path / f"{NAME}.json")["runs"] == before["runs"]
    shutil.rmtree(tmp_path / "work")
    before["config"]["weights"]["relu"] = "0" * 64  # of another network: it says nothing about this one
    records.write(tmp_path / f"{NAME}.json", before)
    with pytest.raises(AssertionError, match="simulated again"):
        reproduce(*words)
    (tmp_path / f"{NAME}.json").write_text("{")  # damaged: no help, no hindrance
    shutil.rmtree(tmp_path / "work")
    with pytest.raises(AssertionError, match="simulated again"):
        reproduce(*words)


def test_only_the_very_training_that_would_be_run_is_taken(
    stored: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, "training.train_accuracy")
    preset = tiny.of(PRESET)
    assert in_zoo(preset, 0, tiny, stored)
    assert not in_zoo(preset, 1, tiny, stored)
    assert not in_zoo(replace(preset, relu=replace(preset.relu, lr=0.2)), 0, tiny, stored)
    assert not in_zoo(replace(preset, rnl=replace(preset.rnl, lr=0.2)), 0, tiny, stored)
    other = replace(PRESET, relu=replace(PRESET.relu, lr=0.2))
    with pytest.raises(AssertionError, match="trained"):
        reproduce(other, 0, tmp_path / "work", tmp_path, tiny, None, lambda text: None, stored)
    place_of(PRESET, 0, tmp_path / "begun", tiny).relu.parent.mkdir(parents=True)
    with pytest.raises(AssertionError, match="trained"):  # one that was begun goes on
        reproduce(PRESET, 0, tmp_path / "begun", tmp_path, tiny, None, lambda text: None, stored)
    own = Path(shutil.copytree(stored, tmp_path / "zoo"))
    model, spec = load_network(own / f"{NAME}-relu.safetensors")
    with torch.no_grad():
        next(model.parameters()).mul_(1.01)
    save_network(own / f"{NAME}-relu.safetensors", model, spec, half=True)
    assert not in_zoo(preset, 0, tiny, own)  # ours did not go on from that one


def test_damaged_origins_are_as_none(stored: Path, tiny: Scale, tmp_path: Path) -> None:
    own = Path(shutil.copytree(stored, tmp_path / "zoo"))
    for bad in ("{", "[]", json.dumps({"config": 3})):
        (own / f"{NAME}-relu.json").write_text(bad)
        assert not in_zoo(tiny.of(PRESET), 0, tiny, own)
    (own / "index.json").unlink()
    assert not in_zoo(tiny.of(PRESET), 0, tiny, own)


def test_the_list_says_what_the_zoo_has_and_nothing_is_announced_for_it(
    stored: Path, tiny: Scale, tmp_path: Path
) -> None:
    at = Folders(tmp_path / "work", tmp_path, None, tiny, stored)
    assert state(PRESET, 0, at) == IN_ZOO
    assert state(PRESET, 0, replace(at, zoo=None)) == "not begun"
    assert list(announcement(plan(["cnn7-mnist"], seeds=[0]), at)) == []


def test_figure_4_needs_the_relu_network_of_the_zoo_and_no_run(
    stored: Path, tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, *TRAINING, "spiking_runs.watched_evaluation")
    shutil.copy(tiny_results / "results" / f"{NAME}.json", tmp_path)
    at = Folders(tmp_path / "work", tmp_path, None, tiny, stored)
    drawn: list[Path] = []
    run_plan(plan(["fig4"], "cnn7-mnist", [0]), at, lambda path: (drawn.append(path), [])[1], lambda text: None)
    assert [path.name for path in drawn] == [f"fig4-{NAME}.json"]
    assert place_of(PRESET, 0, tmp_path / "work", tiny).relu.exists()
    assert not place_of(PRESET, 0, tmp_path / "work", tiny).rnl.exists()
