"""Plots and tables: everything a record can fill, in one style, the same bytes every time."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratenorm import report
from ratenorm.errors import UsageError
from ratenorm.report import plots, tables
from ratenorm.report.measures import runs_of
from ratenorm.report.plots import accuracy, inside, layers, power
from ratenorm.report.style import NARROW, WIDE, colour, styled


def test_every_plot_is_there_at_both_sizes(small: dict[str, Any]) -> None:
    made = plots.all_plots([small])
    assert [plot.slug for plot in made] == [
        "accuracy", "power", "energy", "k", "omega", "rates", "dead", "front", "exit-0", "inside-0",
    ]  # fmt: skip
    seen: set[str] = set()
    for plot in made:
        wide, narrow = plot.inline(WIDE), plot.inline(NARROW)
        assert wide.startswith("<svg viewBox=")
        assert wide != narrow
        assert f'aria-label="{plot.alt}"' in wide
        assert "var(--muted)" in wide
        assert not re.search(r"[:\"]#[0-9a-f]{6}", wide)  # every colour of the style follows the page
        assert "xlink" not in wide
        assert "<style" not in wide
        for text in (wide, narrow):
            ids = re.findall(r' id="([^"]+)"', text)
            assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', text)) == set(ids)
            assert not seen & set(ids)  # one page holds them all
            seen |= set(ids)


def test_names_are_drawn_as_they_are_and_cut_where_they_are_long(small: dict[str, Any]) -> None:
    small["runs"][0]["name"] = "<b> $x_1$ 神经元 " + "long " * 20
    small["runs"][0]["layers"][0]["name"] = "a_layer_of_a_very_deep_network.block.conv"
    first = plots.layer_plots("n", runs_of([small])[:1], 0)[0].inline(NARROW)
    assert "&lt;b&gt; $x_1$ 神经元 long" in first
    assert "<b>" not in first
    assert "a_layer_of_a_very…" in first
    assert "long " * 6 not in first


def test_curves_show_the_record(small: dict[str, Any]) -> None:
    runs = runs_of([small])
    with styled():
        upper, lower = accuracy.accuracy_over_time(runs, WIDE).axes
        k_axes = layers.k_curves(runs, WIDE).axes
        bars = power.energy_bars(runs, WIDE).axes[0]
    lines = [line for line in upper.lines if len(line.get_xdata()) == 8]
    for i, run in enumerate(runs):
        assert lines[i].get_ydata() == pytest.approx(run.accuracy)
        assert lines[i].get_color() == colour(i)
        assert lower.lines[i].get_ydata()[0] == pytest.approx(100 * run.loss_at(1))
    bound, curve = k_axes[0].lines[:2]
    omega = small["runs"][0]["layers"][0]["omega"]
    assert bound.get_ydata() == pytest.approx([2 * omega, 2 * omega / 8])
    assert curve.get_ydata() == pytest.approx(small["runs"][0]["layers"][0]["k"])
    assert len(bars.patches) == 3 * len(runs)


def test_the_shaded_energy_ends_at_the_target(make_record: Callable[..., dict[str, Any]]) -> None:
    record = make_record(steps=64, methods=4, layers=1)
    run = runs_of([record])[3]
    assert run.target_step
    with styled():
        ax = power.power_over_time([run], WIDE).axes[0]
    assert ax.collections[0].get_paths()[0].vertices[:, 0].max() == run.target_step
    assert f"in {run.target_step} steps" in ax.texts[0].get_text()


def test_the_raster_shows_each_spike_once(small: dict[str, Any]) -> None:
    example = small["examples"][0]
    with styled():
        axes = inside.look_inside(example, small["data"]["classes"], WIDE).axes
    raster = example["layers"][0]["raster"]
    shown = sorted({neuron for _, neuron in raster})[: inside.NEURONS_SHOWN]
    expected = sum(neuron in shown for _, neuron in raster)
    assert len(axes[1].patches[0].get_path().vertices) == 2 * expected
    assert "settled at step" in "".join(text.get_text() for text in axes[0].texts)


def test_the_window_of_an_example_has_bounds() -> None:
    def example(steps: int, settled: int | None) -> dict[str, Any]:
        return {"scores": [[0]] * steps, "settled": settled}

    assert inside.window(example(8, 2)) == 8
    assert inside.window(example(256, 2)) == 32
    assert inside.window(example(256, 20)) == 40
    assert inside.window(example(256, None)) == 64


@pytest.mark.parametrize("formats", [("png",), ("svg", "pdf")])
def test_saved_plots_are_the_same_bytes_twice(small: dict[str, Any], tmp_path: Path, formats: tuple[str, ...]) -> None:
    for part in ("examples", "front", "diagnosis"):
        del small[part]
    small["runs"] = [{**small["runs"][0], "layers": []}]
    first = report.save_plots([small], tmp_path / "a", formats)
    second = report.save_plots([small], tmp_path / "b", formats)
    assert len(first) == 3 * len(formats)
    for a, b in zip(first, second):
        assert a.name == b.name
        assert a.read_bytes() == b.read_bytes()


def test_unknown_formats_are_refused(small: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'bmp' is unknown.*png, svg, pdf"):
        report.save_plots([small], tmp_path, ("bmp",))
    with pytest.raises(UsageError, match=r"'xls' is unknown.*csv, tex"):
        report.save_tables([small], tmp_path, ("xls",))


def test_csv_latex_and_html_hold_the_same_cells(small: dict[str, Any], tmp_path: Path) -> None:
    written = report.save_tables([small], tmp_path)
    assert {path.name for path in written} == {
        f"{slug}.{end}" for slug in ("accuracy", "loss", "cost", "layers-0", "layers-1", "diagnosis-0")
        for end in ("csv", "tex")
    }  # fmt: skip
    for table in tables.all_tables([small]):
        rows = list(csv.reader(io.StringIO((tmp_path / f"{table.slug}.csv").read_text("utf-8"))))
        assert tuple(rows[0]) == table.columns
        assert [tuple(row) for row in rows[1:]] == list(table.rows)
        latex = (tmp_path / f"{table.slug}.tex").read_text("utf-8")
        assert latex.count(r"\\") == len(table.rows) + 1
        for row in table.rows:
            assert all(cell in latex for cell in row[1:])
            assert all(f"<td>{cell or '–'}</td>" in table.html() for cell in row[1:])


def test_latex_escapes_what_it_must() -> None:
    table = tables.Table("t", "t", ("a_b", "50 %"), (("θ & \\ {x}", ""),))
    assert r"a\_b & 50 \% \\" in table.latex()
    assert r"$\theta$ \& \textbackslash{} \{x\} & -- \\" in table.latex()


def test_the_tables_have_the_right_figures(small: dict[str, Any]) -> None:
    runs = runs_of([small])
    row = tables.accuracy_table(runs).rows[0]
    assert row[:3] == ("Max Norm", "99.10", f"{100 * runs[0].accuracy[0]:.2f}")
    assert tables.loss_table(runs).rows[0][-1] == f"{100 * runs[0].loss_at(8):.2f}"
    short = {**small["runs"][0], "name": "short", "steps": 1, "accuracy": [0.5]}
    mixed = runs_of([{**small, "runs": [small["runs"][0], short]}])
    assert tables.accuracy_table(mixed).rows[1][2:] == ("50.00", "", "", "")
