"""A short form of `make torture`, and two processes against one. (Signals: tests/cli/test_signals.py.)"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    record = json.loads(out.read_text())
    assert record["failures"] == []
    assert {"config", "seed", "versions", "hardware"} <= record.keys()
    figures = record["figures"]
    if "kills" in figures:
        assert figures["kills"]["kills"] == 10
        assert figures["disk"]["next_checkpoint_succeeds"]
    for command in {"reproduce", "sweep"} & figures.keys():
        assert all(figures[command][number] == 1 for number in ("SIGKILL", "SIGINT", "SIGTERM"))
        assert figures[command]["finished"] > 0
    if "mutants" in figures:
        assert all(f["refused"] + f["same"] > 0 for f in figures["mutants"].values())


def test_two_processes_one_of_which_dies_agree_with_one(tmp_path: Path, environment: dict[str, str]) -> None:
    script = str(Path(__file__).parent / "together.py")
    one_place, two_place, states = (tmp_path / name for name in ("one", "two", "states"))
    for place in (one_place, two_place):
        place.mkdir()
    alone = [sys.executable, script, str(one_place), str(states)]
    together = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    together += [script, str(two_place), str(states), "die"]
    for program in (together, alone):
        ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=200)
        assert ended.returncode == 0, ended.stderr[-3000:]
    one, two = (json.loads((tmp_path / name / "figures.json").read_text()) for name in ("one", "two"))
    assert (one["restarts"], two["restarts"]) == (0, 1)
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-9)  # both stages, in float64
    assert len(two["steps"]) == 20
    assert two["steps"] == pytest.approx(one["steps"], abs=1e-6)  # in float32, every step from the same state
    assert two["thresholds"] == one["thresholds"]
    assert two["counts"] == one["counts"]
