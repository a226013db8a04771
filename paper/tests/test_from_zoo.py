"""A reproduction that begins with the zoo's networks and with the record of an earlier one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paper.networks import Networks
from paper.presets import ALL, BASELINES, BY_NAME
from paper.reproduce import reproduce
from paper.scale import Scale
from paper.spiking_runs import Job, jobs
from paper.targets import IN_ZOO, Folders, announcement, plan, run_plan, state
from paper.zoo_entries import add_to_zoo
from ratenorm import records
from ratenorm.io import zoo
from ratenorm.io.networks import load_network, save_network
from ratenorm.workflows.evaluate import watched_evaluation

PRESET = BY_NAME["cnn7-mnist"]
NAME = "cnn7-mnist-s0-short"


def forbid(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("trained or simulated again")

    for name in names:
        monkeypatch.setattr(name, forbidden)


TRAINING = (
    "ratenorm.workflows.train.train_accuracy",
    "ratenorm.workflows.choose_lambda.train_latency",
    "ratenorm.workflows.choose_lambda.watched_evaluation",
)


def test_what_the_zoo_has_is_not_trained_and_gives_the_same_record(
    tiny_zoo: Path, tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, *TRAINING)
    said: list[str] = []
    reproduce(Networks(PRESET, 0, tmp_path / "work", tiny, None, tiny_zoo), tmp_path, said.append)
    again = records.read(tmp_path / f"{NAME}.json")
    assert [line for line in said if "the zoo has" in line] == [
        f"  the zoo has {NAME}-relu: not trained again",
        f"  the zoo has {NAME}: not trained again",
    ]
    whole = records.read(tiny_results / "results" / f"{NAME}.json")
    assert again["choice"] == whole["choice"]
    assert [run["accuracy"] for run in again["runs"]] == [run["accuracy"] for run in whole["runs"]]
    assert again["config"] == whole["config"]  # the weights, the accuracies, even the time it took to train
    here, there = (Networks(PRESET, 0, work, tiny) for work in (tmp_path / "work", tiny_results / "work"))
    for name in ("relu", "rnl", "ril"):
        assert getattr(here, name).read_bytes() == getattr(there, name).read_bytes(), name


def test_the_runs_of_a_record_of_the_same_weights_are_not_simulated_again(
    tiny_zoo: Path, tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, *TRAINING, "paper.spiking_runs.watched_evaluation")
    shutil.copy(tiny_results / "results" / f"{NAME}.json", tmp_path)
    before = records.read(tmp_path / f"{NAME}.json")
    words = (Networks(PRESET, 0, tmp_path / "work", tiny, None, tiny_zoo), tmp_path, lambda text: None)
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
    tiny_zoo: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, "ratenorm.workflows.train.train_accuracy")
    networks = Networks(PRESET, 0, tmp_path / "work", tiny, None, tiny_zoo)
    other = replace(PRESET, relu=replace(PRESET.relu, lr=0.2))
    assert networks.in_zoo
    assert not replace(networks, seed=1).in_zoo
    assert not replace(networks, whole=other).in_zoo
    assert not replace(networks, whole=replace(PRESET, rnl=replace(PRESET.rnl, lr=0.2))).in_zoo
    with pytest.raises(AssertionError, match="trained"):
        reproduce(replace(networks, whole=other), tmp_path, lambda text: None)
    begun = replace(networks, work=tmp_path / "begun")
    begun.relu.parent.mkdir(parents=True)
    with pytest.raises(AssertionError, match="trained"):  # one that was begun goes on
        reproduce(begun, tmp_path, lambda text: None)
    own = Path(shutil.copytree(tiny_zoo, tmp_path / "zoo"))
    model, spec = load_network(own / f"{NAME}-relu.safetensors")
    with torch.no_grad():
        next(model.parameters()).mul_(1.01)
    save_network(own / f"{NAME}-relu.safetensors", model, spec, half=True)
    assert not replace(networks, zoo=own).in_zoo  # ours did not go on from that one


def test_damaged_origins_are_as_none(tiny_zoo: Path, tiny: Scale, tmp_path: Path) -> None:
    own = Path(shutil.copytree(tiny_zoo, tmp_path / "zoo"))
    networks = Networks(PRESET, 0, tmp_path / "work", tiny, None, own)
    for bad in ("{", "[]", json.dumps({"config": 3})):
        (own / f"{NAME}-relu.json").write_text(bad)
        assert not networks.in_zoo
    (own / "index.json").unlink()
    assert not networks.in_zoo


def test_the_list_says_what_the_zoo_has_and_nothing_is_announced_for_it(
    tiny_zoo: Path, tiny: Scale, tmp_path: Path
) -> None:
    at = Folders(tmp_path / "work", tmp_path, None, tiny, tiny_zoo)
    assert state(PRESET, 0, at) == IN_ZOO
    assert state(PRESET, 0, replace(at, zoo=None)) == "not begun"
    assert list(announcement(plan(["cnn7-mnist"], seeds=[0]), at)) == []


def test_figure_4_needs_the_relu_network_of_the_zoo_and_no_run(
    tiny_zoo: Path, tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, *TRAINING, "paper.spiking_runs.watched_evaluation")
    shutil.copy(tiny_results / "results" / f"{NAME}.json", tmp_path)
    at = Folders(tmp_path / "work", tmp_path, None, tiny, tiny_zoo)
    drawn: list[Path] = []
    run_plan(plan(["fig4"], "cnn7-mnist", [0]), at, lambda path: (drawn.append(path), [])[1], lambda text: None)
    assert [path.name for path in drawn] == [f"fig4-{NAME}.json"]
    assert Networks(PRESET, 0, tmp_path / "work", tiny).relu.exists()
    assert not Networks(PRESET, 0, tmp_path / "work", tiny).rnl.exists()


def test_where_stage_2_changed_nothing_the_run_before_it_serves(
    tiny_zoo: Path, tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RNL + RIL at p = 1 is RNL: a record that has one of them has both."""
    shutil.copytree(tiny_results / "work", tmp_path / "work", ignore=shutil.ignore_patterns("spiking"))
    networks = Networks(PRESET, 0, tmp_path / "work", tiny)
    networks.ril.write_bytes(networks.rnl.read_bytes())
    record = records.read(tiny_results / "results" / f"{NAME}.json")
    record["runs"] = [run for run in record["runs"] if run["name"] == "RNL"]
    records.write(tmp_path / f"{NAME}.json", record)
    forbid(monkeypatch, *TRAINING, "paper.spiking_runs.watched_evaluation")
    monkeypatch.setattr("paper.spiking_runs.jobs", lambda steps: [jobs(steps)[0], jobs(steps)[2]])
    ours, before = reproduce(networks, tmp_path, print)["runs"]
    assert (ours["name"], before["name"]) == ("RNL + RIL", "RNL")
    assert ours["accuracy"] == before["accuracy"] == record["runs"][0]["accuracy"]


def test_a_run_of_a_record_serves_every_method_that_ends_in_the_same_network(
    tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that has RNL has Max Norm from our weights where the thresholds are the same, on all images at once."""
    shutil.copytree(tiny_results / "work", tmp_path / "work", ignore=shutil.ignore_patterns("spiking"))
    record = records.read(tiny_results / "results" / f"{NAME}.json")
    record["runs"] = [run for run in record["runs"] if run["name"] == "RNL"]
    records.write(tmp_path / f"{NAME}.json", record)
    before, twin = jobs(8)[2], Job("twin", "rnl", "scaled:1:trained", 0.0, 8)
    assert before.name == "RNL"
    forbid(monkeypatch, *TRAINING, "paper.spiking_runs.watched_evaluation")
    monkeypatch.setattr("paper.spiking_runs.jobs", lambda steps: [before, twin])
    monkeypatch.setattr("paper.spiking_runs.FIRST_IMAGES", 10)
    _, same = reproduce(Networks(PRESET, 0, tmp_path / "work", tiny), tmp_path, print, whole=())["runs"]
    assert same["name"] == "twin"
    assert "images" not in same
    assert same["accuracy"] == record["runs"][0]["accuracy"]


@pytest.mark.parametrize("name", [name for name in zoo.names(folder=zoo.folder()) if name.endswith("-relu")])
def test_no_long_training_of_the_zoo_would_be_done_again(name: str) -> None:
    """A new option of a training must not make strangers of the networks that were trained before there was one."""
    [preset] = [p for p in ALL if name.startswith(p.name)]
    seed = int(name.removesuffix("-relu").partition("-s")[2] or 0)
    assert Networks(preset, seed, Path("nowhere"), Scale(), None, zoo.folder()).relu_in_zoo


def test_the_recipe_as_published_takes_relu_network_and_baselines_from_ours(
    tiny_zoo: Path, tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = BY_NAME["cnn7-mnist-published"]
    stage1 = preset.rnl
    assert (preset.omega, stage1.lam, stage1.energy, stage1.rest, stage1.steps, stage1.teacher) == (None,) * 6
    assert preset.ril.lam == 0.5  # the paper's is tried first
    assert preset.relu == PRESET.relu
    simulated: list[str] = []

    def counted(name: str, *args: Any, **kwargs: Any) -> Any:
        simulated.append(name)
        return watched_evaluation(name, *args, **kwargs)

    monkeypatch.setattr("paper.spiking_runs.watched_evaluation", counted)
    shutil.copy(tiny_results / "results" / f"{NAME}.json", tmp_path)
    said: list[str] = []
    reproduce(Networks(preset, 0, tmp_path / "work", tiny, None, tiny_zoo), tmp_path, said.append)
    assert [line for line in said if "the zoo has" in line] == [f"  the zoo has {NAME}-relu: not trained again"]
    record = records.read(tmp_path / "cnn7-mnist-published-s0-short.json")
    assert [run["name"] for run in record["runs"]] == [job.name for job in jobs(preset.steps)]
    assert not set(simulated) & set(BASELINES.values())
    assert "RNL" in simulated or "RNL + RIL" in simulated
    own = shutil.copytree(tiny_zoo, tmp_path / "zoo")
    (added,) = add_to_zoo(Networks(preset, 0, tmp_path / "work", tiny), own, 4, said.append, tmp_path)
    assert added.name == "cnn7-mnist-published-s0-short"  # and no second copy of the ReLU network
    assert Networks(preset, 0, tmp_path / "elsewhere", tiny, None, own).in_zoo
