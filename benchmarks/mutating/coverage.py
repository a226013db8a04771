"""Which tests run which line, and how long each takes: one run of the tests under coverage."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from coverage import CoverageData

from mutating.trial import Copy

# Tests of what is mutated. Left out: browsers, installations, and trials of killing, which tell nothing about sums.
TESTS = (
    "tests/core", "tests/laws", "tests/convert", "tests/graph", "tests/contracts", "tests/simulate", "tests/strangers",
    "tests/train", "tests/interop", "tests/diagnose", "tests/workflows", "tests/io", "tests/data", "tests/models",
    "tests/cli", "tests/test_records.py", "tests/test_objects.py", "tests/robustness/test_golden.py",
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
    """The map. From an earlier run where there is one: then only test files that have changed since are run.

    Lines that moved since are found by comparing the sources; a line that is new counts as run by no test, for which
    all tests of its file are taken.
    """
    kept = work / "map.json"
    known: dict[str, Any] = {"files": {}, "lines": {}, "seconds": {}, "sources": {}}
    if kept.exists() and not again:
        known = json.loads(kept.read_text())
        names = known["names"]
        known["lines"] = {f: {n: [names[i] for i in at] for n, at in ls.items()} for f, ls in known["lines"].items()}
    files = {str(f.relative_to(copied.root)): _digest(f) for f in _test_files(copied.root)}
    changed = [file for file, digest in files.items() if known["files"].get(file) != digest]
    sources = {str(f.relative_to(copied.source)): f.read_text() for f in sorted(copied.source.rglob("*.py"))}
    lines = _without(_moved(known["lines"], known["sources"], sources), changed)
    seconds = {test: took for test, took in known["seconds"].items() if test.partition("::")[0] not in changed}
    if changed:
        found, times = _measured(copied, work, changed)
        seconds |= times
        for file, at in found.items():
            for number, tests in at.items():
                lines.setdefault(file, {}).setdefault(number, []).extend(tests)
    place = {name: i for i, name in enumerate(seconds)}
    short = {f: {n: [place[t] for t in at if t in place] for n, at in ls.items()} for f, ls in lines.items()}
    content = {"files": files, "names": list(seconds), "lines": short, "seconds": seconds, "sources": sources}
    kept.write_text(json.dumps(content))
    return Map(lines, seconds)


def _test_files(root: Path) -> list[Path]:
    places = [root / name for name in TESTS]
    return sorted(f for place in places for f in ([place] if place.is_file() else place.rglob("test_*.py")))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _moved(lines: dict[str, Any], before: dict[str, str], now: dict[str, str]) -> dict[str, dict[int, list[str]]]:
    """The lines where they stand now."""
    found: dict[str, dict[int, list[str]]] = {}
    for file in lines.keys() & now.keys():
        old, new = before[file].splitlines(), now[file].splitlines()
        at: dict[int, int] = {}
        for one, other, size in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            at.update({one + k + 1: other + k + 1 for k in range(size)})
        found[file] = {at[int(n)]: list(tests) for n, tests in lines[file].items() if int(n) in at}
    return found


def _without(lines: dict[str, dict[int, list[str]]], files: list[str]) -> dict[str, dict[int, list[str]]]:
    left = set(files)
    return {
        file: {n: [t for t in tests if t.partition("::")[0] not in left] for n, tests in at.items()}
        for file, at in lines.items()
    }


def _measured(copied: Copy, work: Path, files: list[str]) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    data, times = work / "coverage", work / "times.xml"
    words = ["--cov=ratenorm", "--cov-context=test", "--cov-report=", f"--junitxml={times}"]
    words += ["-o", "junit_family=xunit1", "-p", "no:cacheprovider", "-n", "0"]
    own = {"COVERAGE_FILE": str(data), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(copied.place)}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *files], cwd=copied.root, env={**os.environ, **own}, check=False
    )
    if ended.returncode not in (0, 1):
        raise SystemExit(f"Asking which tests run which line: pytest ended with {ended.returncode}.")
    return read_coverage(copied, data, _times(times)), _times(times)


def read_coverage(copied: Copy, data: Path, seconds: dict[str, float]) -> dict[str, dict[int, list[str]]]:
    """The tests that passed, by file and line."""
    read = CoverageData(str(data))
    read.read()
    lines: dict[str, dict[int, list[str]]] = {}
    for path in read.measured_files():
        at: dict[int, list[str]] = defaultdict(list)
        for number, contexts in read.contexts_by_lineno(path).items():
            at[number] = sorted({c.rpartition("|")[0] for c in contexts if "|" in c} & seconds.keys())
        within = copied.place / "ratenorm" if Path(path).is_relative_to(copied.place) else copied.source
        lines[str(Path(path).relative_to(within))] = {n: tests for n, tests in at.items() if tests}
    return lines


def _times(path: Path) -> dict[str, float]:
    """How long every test that passed took; others tell nothing of a fault."""
    seconds = {}
    for case in ElementTree.parse(path).iter("testcase"):
        inside = (case.get("classname") or "").rpartition(".")[2]
        middle = f"{inside}::" if inside.startswith("Test") else ""
        if len(case) == 0:
            seconds[f"{case.get('file')}::{middle}{case.get('name')}"] = float(case.get("time") or 0.0)
    return seconds
