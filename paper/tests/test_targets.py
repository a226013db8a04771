"""Tables and figures by name: what a name asks for, what it says it needs, and that nothing is trained unasked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paper.__main__ import main
from paper.presets import ALL, BY_NAME
from paper.published import TABLE_1
from paper.scale import Scale
from paper.targets import BY_TARGET, TARGETS, Folders, announcement, plan, run_plan, state, stem
from ratenorm import records
from ratenorm.errors import UsageError
from ratenorm.workflows.record import scale_of_runs

CNN7 = BY_NAME["cnn7-mnist"]


def names(words: list[str], **more: Any) -> dict[str, tuple[int, ...]]:
    return {preset.name: seeds for preset, seeds in plan(words, **more).networks}


def test_a_table_asks_for_its_networks_with_all_seeds() -> None:
    assert set(names(["table1"])) == {p.name for p in ALL if (p.data, p.model) in TABLE_1}
    assert names(["table1"])["cnn7-mnist"] == (0, 1, 2)
    assert set(names(["table2"])) == {"vgg16-cifar10", "preact_resnet18-cifar10"}
    assert names(["table1"], seeds=(5,))["vgg16-cifar10"] == (5,)


def test_a_figure_shows_one_network_and_asks_for_no_other() -> None:
    wanted = plan(["fig2", "fig4", "headline"])
    assert wanted.networks == ()
    assert [(s.name, s.preset.name if s.preset else None) for s in wanted.shown] == [
        ("fig2", None), ("fig4", "vgg16-cifar10"), ("headline", "vgg16-cifar10")
    ]  # fmt: skip
    other = plan(["fig6"], network="cnn7-mnist", seeds=(2, 1)).shown[0]
    assert (other.preset, other.seed) == (CNN7, 2)


def test_parts_of_names_and_nothing_at_all() -> None:
    assert set(names(["mnist"])) == {"cnn7-mnist", "cnn7-mnist-published", "alexnet-mnist"}
    assert set(names(["cnn7-mnist"])) == {"cnn7-mnist"}
    assert set(names(["vgg16-cifar10"])) == {"vgg16-cifar10"}  # a whole name is no part of another
    everything = plan([])
    assert [preset for preset, _ in everything.networks] == list(ALL)
    assert {s.name for s in everything.shown} == {t.name for t in TARGETS} - {"table1", "table2"}


def test_a_typo_is_answered_with_all_names() -> None:
    with pytest.raises(UsageError, match=r"'fig5'.*cnn7-mnist.*table1.*fig7"):
        plan(["fig5"])
    for words in (["fig4"], ["table1"], []):  # also where it would not be used
        with pytest.raises(UsageError, match="No preset is called 'vgg'"):
            plan(words, network="vgg")
    with pytest.raises(UsageError, match="called like ''"):  # an empty variable of a shell script is not everything
        plan([""])


def test_a_seed_named_twice_is_run_once() -> None:
    assert names(["cnn7-mnist"], seeds=(1, 0, 1)) == {"cnn7-mnist": (1, 0)}


def test_the_list_says_what_a_figure_needs_and_how_far_records_are(
    tiny_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "cnn7-mnist-s0-short.json"
    words = ["cnn7-mnist", "fig6", "--network", "cnn7-mnist", "--seeds", "0", "--short", "--list"]
    words += ["--work", str(tmp_path / "work"), "--results", str(tmp_path)]

    def seed_0() -> str:
        assert main(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "needs cnn7-mnist" in next(line for line in lines if line.startswith("  fig6"))
        return next(line.strip() for line in lines if "seed 0:" in line)

    assert seed_0() == "seed 0: not begun"
    whole = records.read(tiny_results / "results" / record.name)
    records.write(record, whole)
    assert seed_0() == "seed 0: not begun; all runs in its record"
    records.write(record, whole | {"scale": f"unfinished: 6 of 14 runs; {whole['scale']}"})
    assert seed_0() == "seed 0: not begun; 6 of 14 runs in its record"
    record.write_text("{")
    assert seed_0() == "seed 0: not begun; its record is damaged and will be written anew"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--whole"], "no run is named"),
        (["--seeds"], "no seed is named"),
        (["--seeds", "0", "-1"], "-1 is below 0"),
    ],
)
def test_an_option_without_its_values_never_starts_hours_of_work(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--work", str(tmp_path / "work"), "--results", str(tmp_path / "results")]
    assert main([*where, *given]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_has_to_be_trained_is_said_with_its_hours(tmp_path: Path) -> None:
    at = Folders(tmp_path, tmp_path / "results", None, Scale())
    (line, *_), vgg = list(announcement(plan(["fig4"]), at)), BY_NAME["vgg16-cifar10"]
    assert line.startswith("to train: vgg16-cifar10, seed 0 (fig4 needs it; not begun")
    assert f"about {vgg.hours:.1f} h" in line
    assert 4 < vgg.hours < 8
    assert list(announcement(plan(["fig2", "fig3"]), at)) == []


def test_the_state_of_a_training_in_words(tmp_path: Path) -> None:
    at = Folders(tmp_path, tmp_path / "results", None, Scale())
    place = at.networks(CNN7, 0)
    assert state(CNN7, 0, at) == "not begun"
    place.relu.parent.mkdir(parents=True)
    assert state(CNN7, 0, at) == "epoch 1 of 12"
    (place.relu.parent / "metrics.jsonl").write_text("{}\n{}\n")
    assert state(CNN7, 0, at) == "epoch 3 of 12"
    for part, words in ((place.relu, "ReLU network trained"), (place.rnl, "stage 2 open"), (place.ril, "trained")):
        part.parent.mkdir(exist_ok=True)
        part.touch()
        assert state(CNN7, 0, at) == words


def test_only_the_papers_own_network_has_the_plain_name() -> None:
    full = Folders(Path("work"), Path("results"), None, Scale())
    short = replace(full, scale=Scale(epochs=1))
    assert stem(plan(["fig4"]).shown[0], full) == "fig4"
    assert stem(plan(["fig2"]).shown[0], short) == "fig2"
    assert stem(plan(["fig4"]).shown[0], short) == "fig4-vgg16-cifar10-s0-short"
    assert stem(plan(["fig4"], network="cnn7-mnist").shown[0], full) == "fig4-cnn7-mnist-s0"


def test_the_command_makes_figures_of_a_network_at_hand(
    tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr("paper.scale.SHORT", tiny)
    monkeypatch.setattr("ratenorm.workflows.train.train_accuracy", forbidden)
    record = records.read(tiny_results / "results" / "cnn7-mnist-s0-short.json")
    records.write(tmp_path / "cnn7-mnist-s0-short.json", record)
    words = ["--network", "cnn7-mnist", "--short", "--work", str(tiny_results / "work"), "--results", str(tmp_path)]
    assert main(["fig2", "fig3", "fig4", "fig6", "fig7", "headline", *words]) == 0
    said = capsys.readouterr().out
    figures = sorted((tmp_path / "figures").glob("*.json"))
    assert len(figures) == 5
    page = (tmp_path / "README.md").read_text()
    for path in figures:
        content = json.loads(path.read_text())
        assert content["caption"] in page
        for picture in content["pictures"]:
            assert (tmp_path / "figures" / picture).read_text().startswith("<?xml")
            assert picture in said
            assert f"(figures/{picture})" in page


def test_a_network_renews_the_figures_that_are_read_off_its_record(
    tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a caption would go on telling of an older record, beside the tables of the new one."""
    monkeypatch.setattr("paper.scale.SHORT", tiny)
    (tmp_path / "figures").mkdir()
    stale = tmp_path / "figures" / "fig7-cnn7-mnist-s0-short.json"
    stale.write_text("{}")
    words = ["--short", "--seeds", "0", "--work", str(tiny_results / "work"), "--results", str(tmp_path)]
    assert main(["cnn7-mnist", *words]) == 0
    assert json.loads(stale.read_text())["caption"].startswith("Energy (cnn7 on mnist, seed 0)")
    assert [path.name for path in (tmp_path / "figures").glob("*.json")] == [stale.name]  # and makes no others


def test_figures_are_read_off_a_record_without_its_network(
    tiny_results: Path, tiny: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone has the records but not the trainings: only figure 4 runs the network itself."""
    monkeypatch.setattr("paper.scale.SHORT", tiny)
    at = Folders(tmp_path / "nothing", tiny_results / "results", None, tiny)
    assert list(announcement(plan(["fig6", "fig7", "headline"], "cnn7-mnist"), at)) == []
    (line,) = announcement(plan(["fig4"], "cnn7-mnist"), at)
    assert "fig4 needs it" in line


@pytest.mark.parametrize(
    ("missing", "open_figures"), [("SpikeNorm", []), ("RMP", ["fig6"]), ("Max Norm", ["fig6", "fig7", "headline"])]
)
def test_a_figure_asks_for_the_runs_it_shows_and_for_no_other(
    missing: str, open_figures: list[str], tiny_results: Path, tiny: Scale, tmp_path: Path
) -> None:
    record = records.read(tiny_results / "results" / "cnn7-mnist-s0-short.json")
    whole = record["scale"]
    record["runs"] = [run for run in record["runs"] if run["name"] != missing]
    record["scale"] = f"unfinished: 13 of 14 runs; {whole}"
    at = Folders(tmp_path / "nothing", tmp_path, None, tiny)
    records.write(at.record(CNN7, 0), record)
    for name in ("fig6", "fig7", "headline"):
        lines = list(announcement(plan([name], "cnn7-mnist"), at))
        assert [f"{name} needs it" in line for line in lines] == [True] * (name in open_figures)
    assert scale_of_runs(record) == whole


def test_the_list_shows_networks_tables_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--work", str(tmp_path)]) == 0
    assert "seed 2: in the zoo" in capsys.readouterr().out
    assert main(["--list", "--anew", "--work", str(tmp_path)]) == 0  # whatever the zoo has
    text = capsys.readouterr().out
    assert all(name in text for name in [*BY_NAME, *BY_TARGET])
    assert "seed 2: not begun" in text
    assert "the paper, table 1: 92.86 %, conversion loss -0.04" in text
    assert "57.90 at 16, 85.40 at 32" in text
    assert "52 steps, Max Norm 446, energy 0.265" in text
    assert "24 epochs, triangular lr up to 0.05, the first 58 % on 24 x 24 images" in text
    assert "maxima held at Omega = 2.3, lambda = 0.1 on the weights" in text
    assert main(["table2", "--list", "--work", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "cnn7" not in text
    assert "fig4" not in text
    assert "table2" in text


def test_a_figure_takes_its_own_runs_to_all_images_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def stopped(networks: object, results: object, say: object, whole: object = None) -> None:
        asked.append(whole)
        raise KeyboardInterrupt

    monkeypatch.setattr("paper.targets.reproduce", stopped)
    for whole in (None, (), ("RNL",)):
        at = Folders(tmp_path / "work", tmp_path, None, Scale(), whole=whole)
        with pytest.raises(KeyboardInterrupt):
            run_plan(plan(["fig7"]), at, lambda path: [], lambda text: None)
    assert asked == [{"RNL + RIL", "Max Norm"}, {"RNL + RIL", "Max Norm"}, {"RNL + RIL", "Max Norm", "RNL"}]
