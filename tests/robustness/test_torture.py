"""A short form of `make torture`, and two processes against one. (Signals: tests/cli/test_signals.py.)"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "words",
    [
        ["--only", "kills", "disk", "--kills", "10", "--positions", "8"],
        ["--only", "mutants", "--mutants", "80"],
        ["--only", "forged", "--forged", "120"],
        ["--only", "reproduce", "sweep", "--shots", "1"],
    ],
    ids=lambda words: words[1],
)
def test_short_torture(words: list[str], tmp_path: Path, environment: dict[str, str]) -> None:
    out = tmp_path / "torture.json"
    program = [sys.executable, str(ROOT / "benchmarks" / "torture.py"), *words, "--seed", "5", "--out", str(out)]
    program += ["--work", str(tmp_path / "work")]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    record = json.loads(out.read_text())
    assert record["failures"] == []
    assert {"config", "seed", "versions", "hardware"} <= record.keys()
    figures = record["figures"]
    assert figures.keys() == record["trials"].keys()
    assert not list((tmp_path / "work").rglob("*.json.part*"))
    assert not (tmp_path / "work" / "parts").exists()  # done: the next run tries everything anew
    if "kills" in figures:
        assert figures["kills"]["kills"] == 10
        assert figures["disk"]["next_checkpoint_succeeds"]
    for command in {"reproduce", "sweep"} & figures.keys():
        assert all(figures[command][number] == 1 for number in ("SIGKILL", "SIGINT", "SIGTERM"))
        assert figures[command]["finished"] > 0
    if "mutants" in figures:
        assert all(f["refused"] + f["same"] > 0 for f in figures["mutants"].values())


def test_a_torture_that_is_stopped_goes_on_and_trials_can_be_repeated_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torture

    done: list[str] = []
    stop_before: set[str] = set()

    def pieces(trial: str, given: object) -> dict[str, torture.Trial]:
        def work(place: Path, piece: str) -> dict[str, int]:
            if f"{trial} {piece}" in stop_before:
                raise KeyboardInterrupt
            done.append(f"{trial} {piece}")
            return {"positions": len(done)}

        return {name: partial(work, piece=name) for name in (("a", "b") if trial == "mutants" else ("",))}

    def run(*words: str) -> dict[str, Any]:
        done.clear()
        words = ("torture.py", "--out", str(tmp_path / "out.json"), "--work", str(tmp_path / "work"), *words)
        monkeypatch.setattr(sys, "argv", list(words))
        ended = torture.main()
        assert ended == (130 if stop_before else 0)
        return json.loads((tmp_path / "out.json").read_text())

    monkeypatch.setattr(torture, "one_thread", lambda: None)
    monkeypatch.setattr(torture, "pieces", pieces)
    monkeypatch.setattr(torture, "failures", lambda figures: [])
    stop_before.add("mutants b")
    assert "mutants" in run("--only", "kills", "mutants", "memory")["open"]
    assert done == ["kills ", "mutants a"]
    stop_before.clear()
    record = run("--only", "kills", "mutants", "memory")
    assert done == ["mutants b", "memory "]
    assert record["trials"].keys() == {"kills", "mutants", "memory"}
    assert run("--only", "kills", "--seed", "3")["trials"]["kills"]["seed"] == 3
    assert done == ["kills "]
    record = run("--only", "memory")
    assert {trial: made["seed"] for trial, made in record["trials"].items()} == {"kills": 3, "mutants": 0, "memory": 0}
    assert record["figures"]["mutants"].keys() == {"a", "b"}


def test_two_processes_one_of_which_dies_agree_with_one(tmp_path: Path, environment: dict[str, str]) -> None:
    script = str(Path(__file__).parent / "together.py")
    one_place, two_place, states = (tmp_path / name for name in ("one", "two", "states"))
    for place in (one_place, two_place):
        place.mkdir()
    alone = [sys.executable, script, str(one_place), str(states)]
    together = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    together += [script, str(two_place), str(states), "die"]
    for program in (together, alone):
        ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=600)
        assert ended.returncode == 0, ended.stderr[-3000:]
    one, two = (json.loads((tmp_path / name / "figures.json").read_text()) for name in ("one", "two"))
    assert (one["restarts"], two["restarts"]) == (0, 1)
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-9)  # both stages, in float64
    assert len(two["steps"]) == 20
    assert two["steps"] == pytest.approx(one["steps"], abs=1e-6)  # in float32, every step from the same state
    assert two["thresholds"] == one["thresholds"]
    assert two["counts"] == one["counts"]
