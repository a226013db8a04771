"""Reproduction at a tiny scale: presets, records, the generated page, and going on where it was cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratenorm import records
from ratenorm.cli.main import main
from ratenorm.errors import FileFormatError
from ratenorm.experiments import presets
from ratenorm.experiments.paper import TABLE_1, TABLE_2, TABLE_2_STEPS, numbers_for
from ratenorm.experiments.presets import BASELINES, BY_NAME
from ratenorm.experiments.reproduce import SHORT, Scale, reproduce
from ratenorm.experiments.results_page import write_page


def test_every_network_of_the_papers_table_1_has_a_preset() -> None:
    assert set(TABLE_1) <= {(p.data, p.model) for p in presets.ALL}


def test_the_papers_numbers_have_one_entry_for_each_step() -> None:
    assert all(len(row) == len(TABLE_2_STEPS) for row in TABLE_2.values())
    vgg = numbers_for("cifar10", "vgg16")
    assert vgg["table 2, RNL + RIL"]["accuracy at T = 32"] == 0.854
    assert "accuracy at T = 16" not in vgg["table 2, RMP"]  # the paper has a dash there
    assert numbers_for("mnist", "vgg16") == {}


def test_a_record_holds_ours_and_every_baseline_on_both_networks(tiny_results: Path) -> None:
    record = records.read(tiny_results / "results" / "cnn7-mnist-s0-short.json")
    names = {run["name"] for run in record["runs"]}
    assert {"RNL", "RNL + RIL", *BASELINES.values(), *(f"{b}, our weights" for b in BASELINES.values())} <= names
    assert record["scale"].startswith("reduced: 200 train images")
    assert record["paper"]["table 1"] == TABLE_1["mnist", "cnn7"]
    assert all(len(run["accuracy"]) == 8 for run in record["runs"])


def test_the_page_is_made_of_the_records_and_says_the_scale(tiny_results: Path) -> None:
    page = (tiny_results / "results" / "README.md").read_text()
    record = records.read(tiny_results / "results" / "cnn7-mnist-s0-short.json")
    ours = next(run for run in record["runs"] if run["name"] == "RNL")
    assert f"{100 * max(ours['accuracy']):.2f}" in page
    assert "96.51" in page
    assert "reduced: 200 train images" in page
    assert page == write_page(tiny_results / "results").read_text()


def test_what_is_done_is_not_done_again(
    tiny_results: Path, tiny: Scale, monkeypatch: pytest.MonkeyPatch, small_mnist: None
) -> None:
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("simulated or trained again")

    before = records.read(tiny_results / "results" / "cnn7-mnist-s0-short.json")
    monkeypatch.setattr("ratenorm.experiments.reproduce.watched_evaluation", forbidden)
    monkeypatch.setattr("ratenorm.experiments.training.train_accuracy", forbidden)
    again = reproduce(
        BY_NAME["cnn7-mnist"], 0, tiny_results / "work", tiny_results / "again", tiny, None, lambda text: None
    )
    assert again["runs"] != []
    assert [run["name"] for run in again["runs"]] == [run["name"] for run in before["runs"]]
    assert records.read(tiny_results / "again" / "cnn7-mnist-s0-short.json")["runs"] == before["runs"]


def test_scales_in_words() -> None:
    assert str(Scale()) == "full"
    assert "2,000 train images" in str(SHORT)
    preset = BY_NAME["vgg16-cifar10"]
    assert Scale().of(preset) is preset
    assert SHORT.of(preset).relu == replace(preset.relu, epochs=1, holdout=200)


def test_the_command_lists_presets_and_names_them_on_a_typo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    assert "vgg16-cifar10" in capsys.readouterr().out
    assert main(["reproduce", "vgg61"]) == 2
    assert "There are: cnn7-mnist" in capsys.readouterr().err


def test_a_record_says_how_lambda_was_chosen(tiny_results: Path, tmp_path: Path) -> None:
    record = records.read(tiny_results / "results" / "cnn7-mnist-s0-short.json")
    preset, choice = BY_NAME["cnn7-mnist"], record["choice"]
    assert {t["lam"] for t in choice["tried"]} >= {preset.ril.lam, *preset.lams}
    ours = next(run for run in record["runs"] if run["name"] == "RNL + RIL")
    at_one = next(run for run in record["runs"] if run["name"] == "RNL")
    for ril, rnl, p in zip(ours["layers"], at_one["layers"], choice["tried"][choice["chosen"]]["p"], strict=True):
        assert ril["threshold"] == pytest.approx(p * rnl["threshold"], rel=1e-5)
    assert set(record["config"]["training_seconds"]) == {"relu", "rnl"}
    choice["chosen"] = len(choice["tried"])
    with pytest.raises(FileFormatError, match=r"choice\.chosen"):
        records.write(tmp_path / "record.json", record)
