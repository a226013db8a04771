"""Which tests run which line, and how long each takes: one run of the tests under coverage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from coverage import CoverageData

from mutating.trial import Copy

# Tests of what is mutated. Left out: browsers, installations, and trials of killing, which tell nothing about sums.
TESTS = (
    "tests/core", "tests/laws", "tests/convert", "tests/graph", "tests/contracts", "tests/simulate", "tests/strangers",
    "tests/train", "tests/diagnose", "tests/workflows", "tests/io", "tests/data", "tests/models", "tests/cli",
    "tests/test_records.py", "tests/test_objects.py", "tests/robustness/test_golden.py",
    "tests/robustness/test_bad_numbers.py", "tests/robustness/test_hostile.py", "tests/robustness/test_nothing_lost.py",
)  # fmt: skip
# Code that runs in processes of its own is not seen by coverage.
ELSEWHERE = {"train": ("tests/train/test_several_processes.py",)}


@dataclass(frozen=True)
class Map:
    """What the run found."""

    lines: dict[str, dict[int, list[str]]]  # file -> line -> tests
    seconds: dict[str, float]

    def tests_of(self, file: str, first: int, last: int, budget: float) -> list[str]:
        """The tests that run one of these lines, the quickest first, as many as fit a time; else those of the file."""
        here = self.lines.get(file, {})
        found = {test for line in range(first, last + 1) for test in here.get(line, ())}
        if not found:  # carried out when the module is imported, or in another process
            found = {test for tests in here.values() for test in tests}
        order = sorted(found, key=lambda test: (self.seconds.get(test, 1.0), test))
        kept, total = [], 0.0
        for test in order:
            total += self.seconds.get(test, 1.0)
            if total > budget and kept:
                break
            kept.append(test)
        return kept


def mapped(copied: Copy, work: Path, again: bool) -> Map:
    """The map, from the folder of an earlier run where there is one."""
    kept = work / "map.json"
    if again or not kept.exists():
        kept.write_text(json.dumps(_measured(copied, work)))
    found = json.loads(kept.read_text())
    lines = {file: {int(n): tests for n, tests in at.items()} for file, at in found["lines"].items()}
    return Map(lines, found["seconds"])


def _measured(copied: Copy, work: Path) -> dict[str, object]:
    data, times = work / "coverage", work / "times.xml"
    words = ["--cov=ratenorm", "--cov-context=test", "--cov-report=", f"--junitxml={times}"]
    words += ["-o", "junit_family=xunit1", "-p", "no:cacheprovider", "-n", "0"]
    own = {"COVERAGE_FILE": str(data), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(copied.place)}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *TESTS], cwd=copied.root, env={**os.environ, **own}, check=False
    )
    if ended.returncode not in (0, 1):
        raise SystemExit(f"Asking which tests run which line: pytest ended with {ended.returncode}.")
    seconds = _times(times)
    read = CoverageData(str(data))
    read.read()
    lines: dict[str, dict[int, list[str]]] = {}
    for path in read.measured_files():
        at: dict[int, list[str]] = defaultdict(list)
        for number, contexts in read.contexts_by_lineno(path).items():
            at[number] = sorted({c.rpartition("|")[0] for c in contexts if "|" in c} & seconds.keys())
        within = copied.place / "ratenorm" if Path(path).is_relative_to(copied.place) else copied.source
        name = str(Path(path).relative_to(within))
        lines[name] = {n: tests for n, tests in at.items() if tests}
    return {"lines": lines, "seconds": seconds}


def _times(path: Path) -> dict[str, float]:
    """How long every test that passed took; others tell nothing of a fault."""
    seconds = {}
    for case in ElementTree.parse(path).iter("testcase"):
        inside = (case.get("classname") or "").rpartition(".")[2]
        middle = f"{inside}::" if inside.startswith("Test") else ""
        if len(case) == 0:
            seconds[f"{case.get('file')}::{middle}{case.get('name')}"] = float(case.get("time") or 0.0)
    return seconds
