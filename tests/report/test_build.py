"""The HTML report: complete, self-contained, the same every time, and made even of what is left."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ratenorm import records, report
from ratenorm.errors import DataError, UsageError
from ratenorm.report import measures, plots, summary, svg

Make = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def demo(make_record: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[report.BuildResult, float]:
    """A report as large as the demo's, and the seconds it took."""
    folder = tmp_path_factory.mktemp("demo")
    records.write(folder / "record.json", make_record())
    start = time.process_time()
    result = report.build([folder], folder / "report.html")
    return result, time.process_time() - start


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots left empty, for tests about the words around them."""
    monkeypatch.setattr(plots.Plot, "inline", lambda self, size: "<svg></svg>")


def test_the_demo_report_is_small_and_quick(demo: tuple[report.BuildResult, float]) -> None:
    result, seconds = demo
    assert result.size == result.path.stat().st_size <= 1_500_000
    assert seconds <= 10
    assert (result.records, result.runs, result.warnings) == (1, 4, ())


def test_everything_asked_for_is_in_it(demo: tuple[report.BuildResult, float]) -> None:
    text = demo[0].path.read_text("utf-8")
    for slug in ("summary", "accuracy", "energy", "front", "exit", "inside", "layers", "diagnosis", "paper", "origin"):
        assert f'<section id="{slug}">' in text
        assert f'href="#{slug}"' in text
    for words in (
        "comes within one point of its ANN (99.10 %) after", "reduced: 1,000 of 10,000 test images", "settled at step",
        "times slower than the ANN", "Rate Norm Layer", "start potential θ/2", "torch 2.13.0", "AMD EPYC",
        "bits × bits", "fires at 41 %", "Lower its threshold", "ceil(log2(T + 1)) bits", "92.86 %",
    ):  # fmt: skip
        assert words in text, words


class _Audit(HTMLParser):
    """Collects what a browser would fetch, and checks that elements close in order."""

    VOID = frozenset({"meta", "link", "img", "input", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "srcset", "data", "action") or (name == "href" and tag != "a"):
                self.fetched.append(value or "")
            if name == "id":
                self.ids.append(value or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_it_is_well_formed_and_fetches_nothing(demo: tuple[report.BuildResult, float]) -> None:
    audit = _Audit()
    audit.feed(demo[0].path.read_text("utf-8"))
    assert audit.open == []
    assert all(link.startswith(("data:", "#")) for link in audit.fetched), audit.fetched
    assert len(set(audit.ids)) == len(audit.ids)


def test_the_same_records_give_the_same_bytes(make_record: Make, tmp_path: Path) -> None:
    small = make_record(steps=1, methods=1, layers=1, examples=1, side=4)  # the least there can be
    records.write(tmp_path / "run" / "record.json", small)
    first = report.build([tmp_path / "run"], tmp_path / "one.html").path
    # In another process: neither the order of a set nor the state of matplotlib may show.
    code = f"from ratenorm import report; report.build([{str(tmp_path / 'run')!r}], {str(tmp_path / 'two.html')!r})"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    assert first.read_bytes() == (tmp_path / "two.html").read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_text_of_a_record_cannot_become_markup(small: dict[str, Any], tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><b onx='\"$x_1$"
    small["title"] = small["runs"][0]["name"] = small["diagnosis"]["run"] = small["data"]["classes"][2] = evil
    small["config"] = small["runs"][0]["method"] = {evil: evil}
    small["front"][0]["name"] = small["diagnosis"]["findings"][0]["text"] = evil
    small["runs"][0]["layers"][0]["name"] = small["scale"] = small["hardware"]["cpu"] = evil
    path = records.write(tmp_path / "record.json", small)
    text = report.build([path], tmp_path / "r.html").path.read_text("utf-8")
    assert text.count("<script") == 2
    assert "<b onx" not in text
    data = re.search(r'id="data">(.*?)</script>', text, re.S)
    assert data is not None
    assert json.loads(data.group(1))["runs"][0]["name"] == evil


@pytest.mark.parametrize(
    "shape",
    [{"methods": 0}, {"steps": 3, "methods": 1, "layers": 0, "examples": 0}],
    ids=["no runs", "no layers"],
)
def test_small_records_make_a_report_too(make_record: Make, tmp_path: Path, shape: dict[str, int]) -> None:
    record = make_record(**shape)
    if shape.get("layers") == 0:
        for run in record["runs"]:
            run.update(neurons=1, spikes=[0.0] * 3, synaptic_ops=[0.0] * 3)
    path = records.write(tmp_path / "record.json", record)
    result = report.build([path], tmp_path / "r.html")
    assert result.runs == shape.get("methods", 4)
    assert '<section id="origin">' in result.path.read_text("utf-8")


def test_silent_and_unfinished_figures_are_drawn(small: dict[str, Any], tmp_path: Path) -> None:
    run = small["runs"][0]
    run.update(accuracy=[0.1] * 8, spikes=[0] * 8, images_per_second=None)
    run["layers"][0].update(omega=None, k=[None] * 8, spikes=[0] * 8)
    run["layers"][0]["rate_histogram"]["counts"] = [0] * 20
    small["ann"].update(macs=0, images_per_second=None)
    small["examples"][0].update(settled=None, label=3)
    small["examples"][0]["layers"][0].update(raster=[], first_spike=None)
    path = records.write(tmp_path / "record.json", small)
    text = report.build([path], tmp_path / "r.html").path.read_text("utf-8")
    assert "It never settled in 8 steps" in text
    assert "wrong: it is “3”" in text
    assert "Without a spike among the neurons recorded: conv1" in text
    assert "Not within one point of the ANN in 8 steps" in text


@pytest.mark.usefixtures("undrawn")
def test_several_networks_are_told_apart(make_record: Make, tmp_path: Path) -> None:
    first, second = make_record(steps=4, methods=1, layers=2), make_record(steps=4, methods=1, layers=1)
    second["runs"][0]["network"] = second["ann"]["name"] = "vgg16"
    paths = [records.write(tmp_path / name / "record.json", r) for name, r in (("a", first), ("b", second))]
    result = report.build(paths, tmp_path / "r.html")
    text = result.path.read_text("utf-8")
    assert (result.records, result.runs) == (2, 2)
    assert "<h1>2 runs from 2 records</h1>" in text
    assert "<h3>cnn7</h3>" in text
    assert "<h3>vgg16</h3>" in text
    assert "Max Norm, vgg16 on mnist" in text


@pytest.mark.usefixtures("undrawn")
def test_damage_becomes_sentences_and_the_rest_is_shown(small: dict[str, Any], tmp_path: Path) -> None:
    records.write(tmp_path / "good" / "record.json", small)
    incomplete = {**small, "runs": [{**small["runs"][0], "accuracy": [0.5]}, small["runs"][1]]}
    older = {**small, "version": 0, "versions": {"ratenorm": "0.0.1"}}
    for name, text in (
        ("cut", json.dumps(small)[:500]), ("older", json.dumps(older)), ("incomplete", json.dumps(incomplete)),
    ):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").write_text(text)
    (tmp_path / "empty").mkdir()
    names = ("good", "cut", "older", "incomplete", "empty", "gone")
    result = report.build([tmp_path / name for name in names], tmp_path / "r.html")
    assert (result.records, result.runs) == (2, 3)
    words = " ".join(result.warnings)
    for part in ("damaged or not JSON", "older record version 0", '"runs[0].accuracy" has 1 entries for 8 steps',
                 "holds no record.json", "neither a file nor a folder"):  # fmt: skip
        assert part in words
    page = result.path.read_text("utf-8")
    assert "Not everything could be shown" in page
    assert page.count("<li>") > len(result.warnings)
    assert "holds no record.json" in page


def test_nothing_to_report_on_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no record to report on\..*holds no record\.json"):
        report.build([tmp_path], tmp_path / "r.html")
    with pytest.raises(DataError, match="No path was given"):
        report.build([], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.usefixtures("undrawn")
def test_an_impossible_place_is_an_error_in_words(small: dict[str, Any], tmp_path: Path) -> None:
    path = records.write(tmp_path / "record.json", small)
    with pytest.raises(UsageError, match="it is a folder"):
        report.build([path], tmp_path)
    with pytest.raises(UsageError, match="could not be written"):
        report.build([path], path / "r.html")


@pytest.mark.usefixtures("undrawn")
def test_an_image_seen_through_two_runs_names_the_run(small: dict[str, Any], tmp_path: Path) -> None:
    small["examples"].append({**small["examples"][0], "run": small["runs"][0]["name"]})
    path = records.write(tmp_path / "record.json", small)
    text = report.build([path], tmp_path / "r.html").path.read_text("utf-8")
    assert "<span>#7, “2”, Max Norm</span>" in text
    assert "<span>#7, “2”, Robust Norm 99.9 %</span>" in text


@pytest.mark.usefixtures("undrawn")
def test_more_images_than_shown_are_counted(make_record: Make, tmp_path: Path) -> None:
    path = records.write(tmp_path / "record.json", make_record(steps=2, methods=1, layers=1, examples=9, side=3))
    text = report.build([path], tmp_path / "r.html").path.read_text("utf-8")
    assert "The first 8 of 9 images are shown." in text
    assert text.count('class="panel"') == 8


def test_every_record_of_the_repository_is_shown_alone_and_together(undrawn: None, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    files = sorted((root / "paper" / "results").glob("*.json"))
    records_there = [file for file in files if "runs" in json.loads(file.read_text(encoding="utf-8"))]
    assert len(records_there) >= 10
    together = report.build(records_there, tmp_path / "all.html")
    text = together.path.read_text("utf-8")
    assert text.count('class="sortable"') >= 3
    assert together.size < 2_000_000  # without plots
    assert "more sets of images are in the table below" in text
    for file in records_there[:2]:
        assert report.build([file], tmp_path / "one.html").runs > 0


def test_one_plot_that_fails_does_not_take_the_page_down(
    make_record: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: plots.Plot, size: object) -> str:
        raise RuntimeError("layout of <this>")

    monkeypatch.setattr(plots.Plot, "_inline", broken)
    records.write(tmp_path / "record.json", make_record())
    text = report.build([tmp_path], tmp_path / "report.html").path.read_text("utf-8")
    assert "could not be drawn (RuntimeError: layout of &lt;this&gt;)" in text
    assert "Accuracy (%) when answering at step T" in text


def test_small_tick_labels_are_not_rounded_away() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    ax = figure.subplots()
    ax.plot([0, 1], [0, 1])
    ax.set_yticks([0.001], ["0.001"])
    assert ">0.001<" in svg.inline_svg(figure, "x", "a plot")


def test_a_run_folder_shows_its_training(make_record: Make, tmp_path: Path, undrawn: None) -> None:
    records.write(tmp_path / "record.json", make_record())
    lines = [{"stage": "stage1", "epoch": e, "loss": 1.0 / e, "accuracy": 0.9, "seconds": 3.0} for e in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "broken\n")
    text = report.build([tmp_path], tmp_path / "report.html").path.read_text("utf-8")
    assert '<section id="training">' in text
    assert "the end of each stage" in text
    drawn = plots.training_plot("run", lines, 0).figure()
    assert len(drawn.axes) == 2


def test_at_most_ten_curves_are_drawn_together(make_record: Make) -> None:
    record = make_record()
    many = [{**record["runs"][0], "name": f"run {i}"} for i in range(23)]
    runs = measures.runs_of([{**record, "runs": many}])
    drawn, rest = measures.in_plots(runs)
    assert (len(drawn), len(rest)) == (10, 13)
    assert [len(p.draw.args[0]) for p in plots.more_accuracy_plots(rest)] == [10, 3]


def test_runs_on_different_images_share_no_headline(make_record: Make) -> None:
    record = make_record()
    other = {**record, "data": {**record["data"], "name": "cifar10"}}
    runs = measures.runs_of([record, other])
    sentence = summary.headline(runs)
    assert f"{record['data']['name']}, " in sentence
    assert "cifar10, " in sentence
    assert summary.tiles(runs) == []
