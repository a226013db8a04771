"""The terminal view: reads, never writes, and survives whatever it finds."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ratenorm import report
from ratenorm.errors import UsageError
from ratenorm.io.files import sealed_line
from ratenorm.report import terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def line(**keys: Any) -> str:
    return json.dumps(keys) + "\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = [line(stage=1, epoch=e, step=100 * e, loss=1 / e, accuracy=1 - 0.5 / e, lr=0.1, seconds=60.0 * e,
                  eta_seconds=7500) for e in range(1, 9)]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    return tmp_path


def shown(folder: Path) -> str:
    out = io.StringIO()
    report.watch(folder, once=True, stream=out)
    return out.getvalue()


def test_figures_curves_and_time_left(run: Path) -> None:
    text = shown(run)
    assert "stage 1, epoch 8, step 800" in text
    assert "0.125" in text
    assert "93.75 %" in text
    assert "2 h 05 min" in text
    assert "8 min" in text
    assert "█" in text
    assert "▁" in text


def test_a_half_written_line_is_waited_for_and_damage_is_counted(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write("garbage\n[1]\n" + line(stage=1, epoch=9, step=900, loss=float("nan")) + '{"stage": 1, "epo')
    text = shown(run)
    assert "epoch 9" in text
    assert "2 damaged line(s)" in text
    assert "0.125" in text  # the last loss that is a number


def test_a_line_whose_figures_were_changed_is_left_out(tmp_path: Path) -> None:
    lines = [sealed_line({"stage": 1, "epoch": e, "loss": 1 / 2**e}) + "\n" for e in range(1, 4)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines[:2]) + lines[2].replace("0.125", "0.175"))
    text = shown(tmp_path)
    assert "1 damaged line(s)" in text
    assert "epoch 2" in text
    assert "0.175" not in text


def test_keys_may_be_absent(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(line(loss=0.5) + line(accuracy="high", step=True))
    text = shown(tmp_path)
    assert "loss" in text
    assert "accuracy" not in text


def test_curves_belong_to_the_current_stage(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(line(stage=1, loss=9) * 3 + line(stage=2, loss=1))
    assert terminal.view(tmp_path, now=0).count("▁") == 1


def test_before_the_first_figure(tmp_path: Path) -> None:
    assert "No figures yet" in shown(tmp_path)


def test_last_plots_newest_first(run: Path) -> None:
    (run / "plots").mkdir()
    for age, name in enumerate(["a.png", "b.svg", "c.pdf", "d.html", "e.png", "f.txt"]):
        (run / "plots" / name).write_text("")
        os.utime(run / "plots" / name, (1000 - age, 1000 - age))
    rows = shown(run).splitlines()
    start = rows.index("last plots")
    assert [Path(row.strip()).name for row in rows[start + 1 : start + 5]] == ["a.png", "b.svg", "c.pdf", "d.html"]
    assert not any(row.endswith(("e.png", "f.txt")) for row in rows)


def test_only_the_tail_of_a_long_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "TAIL", 100)
    (tmp_path / "metrics.jsonl").write_text("".join(line(step=i, loss=1.0) for i in range(1000)))
    progress = terminal.read_progress(tmp_path / "metrics.jsonl")
    assert 1 <= len(progress.lines) < 10
    assert progress.unreadable == 0
    assert progress.lines[-1]["step"] == 999


def test_it_ends_when_the_run_has_left_its_record_and_never_writes(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    out, naps = Terminal(), []

    def finish(seconds: float) -> None:
        naps.append(seconds)
        assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
        if len(naps) == 2:
            (run / "record.json").write_text("{}")

    terminal.watch_run(run, interval=0.5, stream=out, sleep=finish)
    assert naps == [0.5, 0.5]
    assert out.getvalue().count("\x1b[2J") == 3
    assert "Finished:" in out.getvalue()


def test_an_unchanged_view_is_printed_once_into_a_file(tmp_path: Path) -> None:
    out, naps = io.StringIO(), []

    def stop(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise KeyboardInterrupt

    terminal.watch_run(tmp_path, stream=out, sleep=stop)
    assert out.getvalue().count("No figures yet") == 1


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        report.watch(tmp_path / "gone", once=True)
    with pytest.raises(UsageError, match="must be above 0"):
        report.watch(tmp_path, interval=0)


def test_sparkline() -> None:
    assert terminal.sparkline([]) == ""
    assert terminal.sparkline([0, 7]) == "▁█"
    assert terminal.sparkline([3.0]) == "▁"
    assert len(terminal.sparkline(list(range(1000)), width=20)) == 20
