"""Reproduction at a tiny scale: presets, records, the generated page, and going on where it was cut."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paper import presets
from paper.__main__ import main
from paper.networks import Networks
from paper.presets import ALL, BASELINES, BY_NAME, IN_TABLE_2
from paper.published import TABLE_1, TABLE_2, TABLE_2_STEPS, numbers_for
from paper.reproduce import reproduce
from paper.results_page import write_page
from paper.scale import SHORT, Scale
from paper.spiking_runs import Bench, Job, jobs, simulate_all
from paper.targets import runs_named
from ratenorm import records
from ratenorm.convert.calibration import Calibration
from ratenorm.data import ImageSet
from ratenorm.errors import FileFormatError
from ratenorm.graph.net import SpikingNet
from ratenorm.io.networks import load_network, save_network
from ratenorm.io.run_folder import RunFolder
from ratenorm.simulate.evaluate import Evaluation, evaluate
from ratenorm.train.config import Stage1
from ratenorm.train.interrupt import Interrupted
from ratenorm.workflows import evaluate as evaluation
from ratenorm.workflows.evaluate import watched_evaluation


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
    assert {"RNL", "RNL + RIL", *BASELINES.values(), *(f"{b}, our weights" for b in IN_TABLE_2)} <= names
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
    monkeypatch.setattr("paper.spiking_runs.watched_evaluation", forbidden)
    monkeypatch.setattr("ratenorm.workflows.choose_lambda.watched_evaluation", forbidden)
    monkeypatch.setattr("ratenorm.workflows.train.train_accuracy", forbidden)
    written: list[int] = []
    write = records.write
    monkeypatch.setattr(
        records, "write", lambda path, record: (written.append(len(record["runs"])), write(path, record))
    )
    again = reproduce(Networks(BY_NAME["cnn7-mnist"], 0, tiny_results / "work", tiny), tiny_results / "again", print)
    assert written == [len(before["runs"])]  # a complete record is never a part of itself, not even for a moment
    assert again["seconds"] == pytest.approx(before["seconds"], rel=1e-5)
    assert again["runs"] != []
    assert [run["name"] for run in again["runs"]] == [run["name"] for run in before["runs"]]
    assert records.read(tiny_results / "again" / "cnn7-mnist-s0-short.json")["runs"] == before["runs"]


def test_another_relu_network_is_not_taken_for_the_one_that_the_training_started_from(
    tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("paper.scale.SHORT", tiny)
    shutil.copytree(tiny_results / "work", tmp_path / "work")
    words = ["cnn7-mnist", "--short", "--seeds", "0", "--work", str(tmp_path / "work")]
    words += ["--results", str(tmp_path / "results")]
    assert main([*words, "--root", str(tmp_path)]) == 0  # folders and data may move
    place = Networks(BY_NAME["cnn7-mnist"], 0, tmp_path / "work", tiny)
    model, spec = load_network(place.relu)
    with torch.no_grad():
        next(model.parameters()).mul_(1.01)
    save_network(place.relu, model, spec)
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "differs in from_relu_sha256" in said
    assert "remove that folder to start it anew" in said
    config = json.loads((place.rnl.parent / "config.json").read_text())
    del config["from_relu_sha256"]  # as trainings of the first versions are: taken at their word
    (place.rnl.parent / "config.json").write_text(json.dumps(config))
    assert main(words) == 0


def test_scales_in_words() -> None:
    assert str(Scale()) == "full"
    assert "2,000 train images" in str(SHORT)
    preset = BY_NAME["vgg16-cifar10"]
    assert Scale().of(preset) is preset
    assert SHORT.of(preset).relu == replace(preset.relu, epochs=1, holdout=200)


def test_the_command_lists_presets_and_names_them_on_a_typo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "vgg16-cifar10" in capsys.readouterr().out
    assert main(["vgg61"]) == 2
    assert "There are: cnn7-mnist" in capsys.readouterr().err


def test_a_record_says_how_lambda_was_chosen(tiny_results: Path, tmp_path: Path) -> None:
    record = records.read(tiny_results / "results" / "cnn7-mnist-s0-short.json")
    preset, choice = BY_NAME["cnn7-mnist"], record["choice"]
    assert {t["lam"] for t in choice["tried"]} >= {preset.ril.lam, preset.lams[0], 0.0}
    ours = next(run for run in record["runs"] if run["name"] == "RNL + RIL")
    at_one = next(run for run in record["runs"] if run["name"] == "RNL")
    for ril, rnl, p in zip(ours["layers"], at_one["layers"], choice["tried"][choice["chosen"]]["p"], strict=True):
        assert ril["threshold"] == pytest.approx(p * rnl["threshold"], rel=1e-5)
    assert set(record["config"]["training_seconds"]) == {"relu", "rnl"}
    choice["chosen"] = len(choice["tried"])
    with pytest.raises(FileFormatError, match=r"choice\.chosen"):
        records.write(tmp_path / "record.json", record)


def test_the_runs_that_matter_come_first_and_go_on_to_the_end() -> None:
    found = jobs(512)
    assert [job.name for job in found[:4]] == ["RNL + RIL", "Max Norm", "RNL", "RNL + RIL, v(0) = θ/2"]
    assert [job.name for job in found[4:6]] == ["Robust Norm", "RMP"]
    assert len({job.name for job in found}) == len(found) == 4 + len(BASELINES) + len(IN_TABLE_2)
    for job in found:
        in_a_table = job.name.removesuffix(", our weights") in ("RNL + RIL", "RNL", "Max Norm", "Robust Norm", "RMP")
        assert job.steps == (512 if in_a_table or job.name == "Diehl, data-based" else 256)
        assert job.network == ("relu" if job.name in BASELINES.values() else "ril" if "RIL" in job.name else "rnl")
    assert all(job.steps == 64 for job in jobs(64))


def test_a_stopped_evaluation_leaves_a_record_that_says_so_and_goes_on(
    tiny_results: Path, tiny: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_mnist: None
) -> None:
    shutil.copytree(tiny_results / "work", tmp_path / "work", ignore=shutil.ignore_patterns("spiking"))
    simulated: list[str] = []

    def counted(name: str, *args: Any, **kwargs: Any) -> Evaluation:
        if len(simulated) == 3:
            raise KeyboardInterrupt
        simulated.append(name)
        return watched_evaluation(name, *args, **kwargs)

    words = (Networks(BY_NAME["cnn7-mnist"], 0, tmp_path / "work", tiny), tmp_path, print)
    chosen = ("Max Norm", "Robust Norm", "RMP", "SpikeNorm")  # no two are the same spiking network
    wanted = [job for job in jobs(8) if job.name in chosen]
    monkeypatch.setattr("paper.spiking_runs.jobs", lambda steps: wanted)
    monkeypatch.setattr("paper.spiking_runs.watched_evaluation", counted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(*words)
    partial = records.read(tmp_path / "cnn7-mnist-s0-short.json")
    assert [run["name"] for run in partial["runs"]] == simulated
    assert partial["scale"].startswith("unfinished: 3 of 4 runs; reduced")
    assert "seed 0: 3 of 4 runs\n" in write_page(tmp_path).read_text()
    monkeypatch.setattr("paper.spiking_runs.watched_evaluation", watched_evaluation)
    reproduce(*words)
    whole = records.read(tiny_results / "results" / "cnn7-mnist-s0-short.json")
    again = records.read(tmp_path / "cnn7-mnist-s0-short.json")
    assert again["scale"] == whole["scale"]
    before = {run["name"]: run["accuracy"] for run in whole["runs"] if run["name"] in chosen}
    assert {run["name"]: run["accuracy"] for run in again["runs"]} == before


def test_equal_spiking_networks_are_simulated_once(
    tiny_results: Path, tiny: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: dict[str, ImageSet]
) -> None:
    place = Networks(BY_NAME["cnn7-mnist"], 0, tiny_results / "work", tiny)
    model, spec = load_network(place.ril)
    same, other = (
        (Job("a", "ril", "trained", 0.0, 4), Job("b", "ril", "trained", 0.0, 4)),
        Job("c", "ril", "max", 0.0, 4),
    )
    simulated: list[str] = []

    def counted(name: str, *args: Any, **kwargs: Any) -> Evaluation:
        simulated.append(name)
        return watched_evaluation(name, *args, **kwargs)

    monkeypatch.setattr("paper.spiking_runs.jobs", lambda steps: [*same, other])
    monkeypatch.setattr("paper.spiking_runs.watched_evaluation", counted)
    kept: list[list[dict[str, Any]]] = []
    images = torch.rand(8, *spec.input_shape)
    test = digits["test"].subset(range(10))
    with RunFolder(tmp_path) as folder:
        folder.configure({})
        bench = Bench({"ril": model}, spec, test, Calibration(images), folder)
        simulate_all(bench, 4, lambda runs, todo: kept.append(list(runs)))
    assert simulated == ["a", "c"]
    first, second, third = kept[-1]
    assert {**first, "name": "b"} == second
    assert third["method"] != second["method"]


def test_a_glance_compares_all_methods_on_the_first_images_and_the_rest_goes_on_from_there(
    tiny_results: Path, tiny: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_mnist: None
) -> None:
    shutil.copytree(tiny_results / "work", tmp_path / "work", ignore=shutil.ignore_patterns("spiking"))
    chosen = ("RNL", "Max Norm")
    wanted = [job for job in jobs(8) if job.name in chosen]
    simulated: list[int] = []

    def counted(net: SpikingNet, batches: Any, steps: int, *, so_far: Evaluation, **more: Any) -> Evaluation:
        before = so_far.images
        found = evaluate(net, batches, steps, so_far=so_far, **more)
        simulated.append(found.images - before)
        return found

    monkeypatch.setattr("paper.spiking_runs.jobs", lambda steps: wanted)
    monkeypatch.setattr("paper.spiking_runs.FIRST_IMAGES", 10)
    monkeypatch.setattr("paper.spiking_runs.BATCH", 10)
    monkeypatch.setattr("ratenorm.workflows.evaluate.evaluate", counted)
    words = (Networks(BY_NAME["cnn7-mnist"], 0, tmp_path / "work", tiny), tmp_path, print)
    reproduce(*words, whole=())
    record = records.read(tmp_path / "cnn7-mnist-s0-short.json")
    everything = record["data"]["images"]
    assert [(run["images"], len(run["accuracy"])) for run in record["runs"]] == [(10, 8), (10, 8)]
    assert all(run["source_accuracy"] in {n / 10 for n in range(11)} for run in record["runs"])
    assert record["scale"].startswith("unfinished: 0 of 2 runs, 2 more on the first 10 images; reduced")
    page = write_page(tmp_path).read_text()
    assert "†: of at least one seed on the first 10 test images" in page
    assert "| RNL † |" in page
    assert len(list((tmp_path / "work").rglob("*.sums.json"))) == 2  # to go on from

    reproduce(*words, whole=["Max Norm"])
    assert simulated == [10, 10, everything - 10]
    record = records.read(tmp_path / "cnn7-mnist-s0-short.json")
    assert {run["name"]: run.get("images") for run in record["runs"]} == {"RNL": 10, "Max Norm": None}
    assert record["scale"].startswith("unfinished: 1 of 2 runs, 1 more on the first 10 images; reduced")
    reproduce(*words)
    assert simulated == [10, 10, everything - 10, everything - 10]
    assert not list((tmp_path / "work").rglob("*.sums.json"))
    whole = records.read(tiny_results / "results" / "cnn7-mnist-s0-short.json")
    again = records.read(tmp_path / "cnn7-mnist-s0-short.json")
    assert again["scale"] == whole["scale"]
    figures = ("accuracy", "spikes", "ann_accuracy")
    before = {run["name"]: [run[key] for key in figures] for run in whole["runs"] if run["name"] in chosen}
    assert {run["name"]: [run[key] for key in figures] for run in again["runs"]} == before
    assert all("images" not in run for run in again["runs"])
    sources = {run["name"]: (run["source"], run["source_accuracy"]) for run in again["runs"]}
    config = again["config"]
    assert sources == {"RNL": ("with Rate Norm", config["rnl_ann"]), "Max Norm": ("with ReLU", config["relu_ann"])}
    assert "†" not in write_page(tmp_path).read_text()


def test_a_run_on_its_way_to_all_images_goes_on_when_its_work_folder_is_gone(
    tiny_results: Path, tiny: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_mnist: None
) -> None:
    """What took hours lies beside the records: its sums are exact, so it ends as if it had never been stopped."""
    shutil.copytree(tiny_results / "work", tmp_path / "work", ignore=shutil.ignore_patterns("spiking"))
    wanted = [job for job in jobs(8) if job.name == "RNL"]
    monkeypatch.setattr("paper.spiking_runs.jobs", lambda steps: wanted)
    monkeypatch.setattr("paper.spiking_runs.FIRST_IMAGES", 4)
    monkeypatch.setattr("paper.spiking_runs.BATCH", 4)
    plain, seen, stop_at = evaluation.parts, [], 12

    def parts(*arguments: Any) -> Any:
        for part in plain(*arguments):
            seen.append(part.first_image)
            if part.first_image == stop_at:
                signal.raise_signal(signal.SIGTERM)
            yield part

    monkeypatch.setattr(evaluation, "parts", parts)
    words = (Networks(BY_NAME["cnn7-mnist"], 0, tmp_path / "work", tiny), tmp_path, print)
    with pytest.raises(Interrupted, match=r"stopped after 16 images; the sums are in .*unfinished"):
        reproduce(*words)
    assert seen == [0, 4, 8, 12]
    assert len(list((tmp_path / "unfinished" / "cnn7-mnist-s0-short").glob("*.sums.json"))) == 1
    shutil.rmtree(tmp_path / "work" / "cnn7-mnist-s0-short" / "spiking")
    stop_at = -1
    reproduce(*words)
    assert seen[4:] == [16]  # and not one batch again
    assert not list((tmp_path / "unfinished").iterdir())
    whole, again = (records.read(at / "cnn7-mnist-s0-short.json") for at in (tiny_results / "results", tmp_path))
    before = next(run for run in whole["runs"] if run["name"] == "RNL")
    for key in ("accuracy", "spikes", "synaptic_ops", "ann_accuracy"):
        assert again["runs"][0][key] == before[key]


def test_runs_that_go_on_to_all_images_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert runs_named(None) is None
    assert runs_named(["nothing"]) == ()
    assert runs_named(["RNL + RIL", "Max Norm"]) == ("RNL + RIL", "Max Norm")
    assert main(["--list", "--whole", "RNL+RIL"]) == 2
    said = capsys.readouterr().err
    assert "no run is called 'RNL+RIL'" in said
    assert "RNL + RIL, v(0) = θ/2" in said
    assert main(["--list", "--whole", "nothing", "Max Norm"]) == 2
    assert "no run is called 'nothing'" in capsys.readouterr().err
    assert main(["--list", "--whole", "nothing"]) == 0


def test_a_record_with_first_images_only_is_known_in_an_empty_folder(
    tiny_results: Path, tiny: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_mnist: None
) -> None:
    shutil.copytree(tiny_results / "work", tmp_path / "work", ignore=shutil.ignore_patterns("spiking"))
    monkeypatch.setattr("paper.spiking_runs.FIRST_IMAGES", 10)
    monkeypatch.setattr("paper.spiking_runs.BATCH", 10)
    words = (Networks(BY_NAME["cnn7-mnist"], 0, tmp_path / "work", tiny), tmp_path, print)
    first = reproduce(*words, whole=())
    shutil.rmtree(tmp_path / "work" / "cnn7-mnist-s0-short" / "spiking")

    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("simulated again")

    monkeypatch.setattr("paper.spiking_runs.watched_evaluation", forbidden)
    again = reproduce(*words, whole=())
    assert [run["name"] for run in again["runs"]] == [run["name"] for run in first["runs"]]
    with pytest.raises(AssertionError, match="simulated again"):
        reproduce(*words)
    kept = records.read(tmp_path / "cnn7-mnist-s0-short.json")
    assert len(kept["runs"]) == len(first["runs"])  # to begin with the rest loses nothing


@pytest.mark.parametrize("name", [preset.name for preset in ALL if preset.variant == "as published"])
def test_a_published_preset_keeps_no_term_of_ours(name: str) -> None:
    """Weights learn accuracy alone, maxima run, p learns with the paper's lambda: whatever our recipe adds is off."""
    published, plain = BY_NAME[name], Stage1()
    for term in ("lam", "energy", "rest", "steps", "teacher", "settle"):
        assert getattr(plain, term) is None
        assert getattr(published.rnl, term) is None, term
    ours = BY_NAME[published.base]
    assert published.relu == ours.relu
    assert (published.omega, published.ril.lam, published.ril.per_layer) == (None, 0.5, False)
    assert published.rnl.epochs == ours.rnl.epochs
    assert published.rnl_note == ""
