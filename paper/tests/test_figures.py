"""The data of the paper's figures: what the equations say of them, and what the records say."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paper.figures import PICTURES, Source, make_figure, read_figure
from paper.headline import race
from paper.networks import Networks
from paper.presets import BY_NAME
from paper.results_page import write_page
from paper.scale import Scale
from paper.toy import rate_norm_response, toy_firing_rates
from ratenorm import records
from ratenorm.errors import FileFormatError
from ratenorm.io.networks import load_network, save_network

TOY: dict[str, Any] = {"sizes": [12, 16, 16, 3], "samplings": 4, "steps": 100, "seed": 6}


@pytest.fixture
def source(tiny_results: Path, tiny: Scale) -> Source:
    preset = tiny.of(BY_NAME["cnn7-mnist"])
    record = records.read(tiny_results / "results" / "cnn7-mnist-s0-short.json")
    return Source(Networks(preset, 0, tiny_results / "work", tiny), record)


def made(name: str, source: Source | None, folder: Path) -> dict[str, Any]:
    return read_figure(make_figure(name, name, source, folder))


def test_the_response_is_a_clipped_line_and_neurons_follow_it_from_below() -> None:
    found = rate_norm_response([1.0, 0.5], running_max=2.0, points=141, steps=64)
    for curve in found["curves"]:
        assert curve["threshold"] == curve["p"] * 2.0
        for x, rate in zip(found["x"], curve["rate"], strict=True):
            assert rate == pytest.approx(min(1.0, max(0.0, x / curve["threshold"])), abs=1e-6)
        for x, rate in zip(found["spiking_x"], curve["spiking_rate"], strict=True):
            exact = min(1.0, max(0.0, x / curve["threshold"]))
            assert exact - 1 / 64 - 1e-5 <= rate <= exact + 1e-5  # Lemma 1: the floor of a spike count


def test_toy_rates_come_to_where_they_should() -> None:
    found = toy_firing_rates(**TOY)
    analog = torch.tensor(found["analog"])
    assert ((analog > 0.05) & (analog < 0.95)).all()  # neither silent nor saturated: there is something to see
    for coding, near in (("constant", 0.05), ("poisson", 0.2)):
        rates = torch.tensor(found[coding])  # [sampling, neuron, T]
        assert rates.shape == (4, 3, 100)
        assert ((rates * torch.arange(1, 101)).sub((rates * torch.arange(1, 101)).round()).abs() < 1e-4).all()
        assert (rates[..., -1] - analog).abs().max() < near
        assert (rates[0] != rates[1]).any()  # samplings start differently
    assert found == toy_firing_rates(**TOY)


def test_a_figure_says_where_it_comes_from(tmp_path: Path, source: Source, small_mnist: None) -> None:
    for name in PICTURES:
        figure = made(name, source if name not in ("fig2", "fig3") else None, tmp_path)
        assert {"config", "seed", "versions", "hardware", "seconds", "caption", "data", "paper"} <= set(figure)
        assert len(figure["pictures"]) == len(PICTURES[name])
        assert figure["seconds"] >= 0
        if name not in ("fig2", "fig3"):
            assert figure["scale"] == source.record["scale"]
            assert figure["config"]["record"] == "cnn7-mnist-s0-short.json"


def test_figure_4_scales_the_thresholds_and_with_them_omega(tmp_path: Path, source: Source, small_mnist: None) -> None:
    figure = made("fig4", source, tmp_path)
    full, scaled = figure["data"]["runs"]
    for a, b in zip(full["layers"], scaled["layers"], strict=True):
        assert b["threshold"] == pytest.approx(0.8 * a["threshold"], rel=1e-5)
        assert b["omega"] <= a["omega"] * (1 + 1e-6)
        assert len(a["k"]) == figure["config"]["steps"] == 8


def test_figure_6_holds_the_runs_of_the_record(tmp_path: Path, source: Source) -> None:
    by_name = {run["name"]: run for run in source.record["runs"]}
    ours, before = by_name["RNL + RIL"]["layers"], by_name["RNL"]["layers"]
    for one, other in zip(ours, before, strict=True):  # whatever stage 2 has chosen
        one["threshold"] = 0.9 * other["threshold"]
    figure = made("fig6", source, tmp_path)
    assert "same network" not in figure["caption"]
    for run in figure["data"]["runs"]:
        original = by_name[run["name"]]
        assert run["accuracy"] == original["accuracy"]
        assert [layer["k"] for layer in run["layers"]] == [layer["k"] for layer in original["layers"]]
        relu = run["name"] not in ("RNL", "RNL + RIL")
        ann = source.record["config"]["relu_ann"] if relu else source.record["ann"]["accuracy"]
        assert run["ann"]["accuracy"] == pytest.approx(ann, rel=1e-6)
    assert len(figure["config"]["layers"]) == 3  # CNN-7 has no four
    assert figure["config"]["in_a_and_c"] == ["RNL + RIL", "RNL", "Max Norm"]
    assert figure["config"]["only_in_c"] == ["RMP"]  # the paper's (c) has scaled thresholds too
    by_name["RNL"]["layers"] = ours  # p = 1 was best: one curve would lie on the other
    figure = made("fig6", source, tmp_path)
    assert figure["config"]["in_a_and_c"] == ["RNL + RIL", "Max Norm"]
    assert "Stage 2 left p at 1 here: RNL alone is the same network." in figure["caption"]
    by_name["RNL"]["layers"] = before
    by_name["RNL"]["images"] = 5  # not on all images: left out, not shown as if it were
    figure = made("fig6", source, tmp_path)
    assert [run["name"] for run in figure["data"]["runs"]] == ["RNL + RIL", "Max Norm", "Robust Norm", "RMP"]
    assert figure["config"]["in_a_and_c"] == ["RNL + RIL", "Max Norm"]


def test_figure_7_is_the_headline_at_every_accuracy(tmp_path: Path, source: Source) -> None:
    for run in source.record["runs"]:  # curves that climb, so that there is something to compare
        slow = 2 if run["name"] == "Max Norm" else 1
        run["accuracy"] = [min(1.0, t / (4 * slow)) for t in range(1, 9)]
        run["spikes"] = [3.0 / slow] * 8
    figure = made("fig7", source, tmp_path)
    ratio = figure["data"]["ratio"]
    assert ratio["accuracy"] == [i / 200 for i in range(41, 200)]  # above twice chance
    for level, speed, energy in zip(*(ratio[k] for k in ("accuracy", "log10_speed_up", "log10_energy")), strict=True):
        found = race(source.record, level)
        assert found is not None
        assert found.ours is not None
        assert found.theirs is not None
        assert speed == pytest.approx(math.log10(found.theirs / found.ours), abs=1e-6)
        assert energy == pytest.approx(math.log10(found.our_spikes / found.their_spikes), abs=1e-6)
    assert figure["paper"]["energy_ratio"] == 0.265


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "ratenorm-figure", "version": 9}', "[" * 9999])
def test_what_is_no_figure_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "fig9.json"
    path.write_text(content)
    with pytest.raises(FileFormatError, match=r"fig9\.json"):
        read_figure(path)


def test_pictures_are_named_after_figure_and_network(tmp_path: Path, source: Source) -> None:
    names = read_figure(make_figure("fig6", "fig6-cnn7-mnist-s0", source, tmp_path))["pictures"]
    assert names == [f"fig6{letter}-cnn7-mnist-s0.svg" for letter in "abc"]


def test_the_same_figure_has_the_same_curves(tmp_path: Path, source: Source, small_mnist: None) -> None:
    found = []
    for place in ("a", "b"):
        shutil.rmtree(source.networks.path / "figures", ignore_errors=True)  # or the second is remembered
        found.append(made("fig4", source, tmp_path / place)["data"])
    assert json.dumps([_without_times(run) for run in found[0]["runs"]]) == json.dumps(
        [_without_times(run) for run in found[1]["runs"]]
    )


def _without_times(run: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in run.items() if key != "images_per_second"}


def test_figure_4_of_another_network_is_not_remembered(tmp_path: Path, source: Source, small_mnist: None) -> None:
    first = made("fig4", source, tmp_path / "a")
    moved = replace(source, networks=replace(source.networks, work=tmp_path / "work"))
    shutil.copytree(source.networks.path, moved.networks.path)
    model, spec = load_network(moved.networks.relu)
    with torch.no_grad():
        next(model.parameters()).mul_(3.0)
    save_network(moved.networks.relu, model, spec)
    second = made("fig4", moved, tmp_path / "b")
    thresholds = [[layer["threshold"] for layer in found["data"]["runs"][0]["layers"]] for found in (first, second)]
    assert thresholds[0] != thresholds[1]


@pytest.mark.parametrize(("name", "read_off"), [("fig4", False), ("fig6", True), ("fig7", True)])
def test_the_page_says_where_a_figure_tells_of_another_network(
    name: str, read_off: bool, source: Source, tiny_results: Path, tmp_path: Path
) -> None:
    results = Path(shutil.copytree(tiny_results / "results", tmp_path / "results"))
    path = make_figure(name, name, source, results / "figures")
    for picture in read_figure(path)["pictures"]:
        (results / "figures" / picture).touch()
    page = write_page(results).read_text()
    assert f"### Figure {name[-1]}" in page
    assert "an earlier training" not in page
    record = {**source.record, "runs": [{**run} for run in source.record["runs"]]}
    ours = next(run for run in record["runs"] if run["name"] == "RNL + RIL")
    ours["accuracy"] = [*ours["accuracy"][:-1], ours["accuracy"][-1] + 0.05]
    records.write(results / f"{source.networks.label}.json", record)
    assert ("**Of an earlier training of this network**" in write_page(results).read_text()) == read_off
