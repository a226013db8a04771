"""Mutants: faults put into the package one at a time. Does a test notice?

python benchmarks/mutants.py                     200 faults drawn by a seed; resumes after a stop
python benchmarks/mutants.py --again             what survived is tried once more, for instance with new tests
python benchmarks/mutants.py --map               asks again which tests run which line (some minutes)

A fault counts as killed where a test fails, or where the tests come to no end. A survivor that no test can tell from
the original is equivalent: `benchmarks/equivalent_mutants.json` argues each of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import hypothesis  # noqa: F401  # loaded once, before the forks
import numpy  # noqa: F401
import pytest  # noqa: F401
import safetensors.torch  # noqa: F401
import torch

from mutating.coverage import ELSEWHERE, Map, mapped
from mutating.faults import Fault, faults
from mutating.trial import Copy, tried
from ratenorm.io.files import write_atomic
from ratenorm.workflows.environment import hardware, versions

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("core", "convert", "simulate", "train", "records")
EQUIVALENT = ROOT / "benchmarks" / "equivalent_mutants.json"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS), help="folders of src/ratenorm, or files")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of tests for a fault, as they took alone")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for a fault, after which no test is begun")
    parser.add_argument("--map", action="store_true", help="ask again which tests run which line")
    parser.add_argument("--again", action="store_true", help="try what survived once more")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/mutants.json")
    parser.add_argument("--work", type=Path, default=ROOT / "runs/mutants")
    return parser.parse_args()


def drawn(rooms: list[str], count: int, seed: int) -> list[Fault]:
    """The faults whose names have the smallest hashes: a change of one file leaves the draw from the others as it is.

    No two of them change the same expression in the same way.
    """
    source = ROOT / "src" / "ratenorm"
    files = sorted(f for room in rooms for f in (source / room).rglob("*.py")) or [source / room for room in rooms]
    found = {fault.name: fault for file in files for fault in faults(source, str(file.relative_to(source)))}
    return [found[name] for name in sorted(found, key=lambda name: sha256(f"{seed} {name}".encode()).digest())[:count]]


def tests_for(fault: Fault, known: Map, budget: float) -> list[str]:
    text = (ROOT / "src" / "ratenorm" / fault.file).read_bytes()
    last = fault.line + text[fault.start : fault.end].count(b"\n")
    return known.tests_of(fault.file, fault.line, last, budget) or list(ELSEWHERE.get(fault.file.split("/")[0], ()))


def summary(results: dict[str, Any], equivalent: dict[str, str]) -> dict[str, Any]:
    """How many of each, and the share of those that can be told apart that were killed."""
    counts = Counter("equivalent" if name in equivalent else r["result"] for name, r in results.items())
    killed = counts["killed"] + counts["endless"]
    told = sum(counts.values()) - counts["equivalent"]
    missed = sum(r["at_first"] == "survived" for r in results.values())
    return {
        "tried": len(results),
        **dict(sorted(counts.items())),
        "survived_at_first": missed,  # before tests were written for them
        "share_killed": round(killed / max(1, told), 4),
    }


def check_without_fault(copied: Copy, file: str, killers: set[str]) -> None:
    """A test that fails on the package as it is kills nothing."""
    nothing = Fault(file, 1, 0, 0, "", "nothing")
    outcome = tried(copied, nothing, sorted(killers), 3600.0)
    if outcome.result != "survived":
        raise SystemExit(f"{outcome.by} fails without a fault ({outcome.result}): what it killed must be tried again.")
    print(f"{len(killers)} tests killed a fault; all of them pass without one.", flush=True)


def main() -> int:
    given = options()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    given.work.mkdir(parents=True, exist_ok=True)
    copied = Copy(ROOT, given.work.resolve() / "package")
    known = mapped(copied, given.work.resolve(), given.map)
    chosen = drawn(given.rooms, given.count, given.seed)
    before = json.loads(given.out.read_text())["mutants"] if given.out.exists() else {}
    results = {f.name: before[f.name] for f in chosen if f.name in before}
    for number, fault in enumerate(chosen, 1):
        if fault.name in results and not (given.again and results[fault.name]["result"] == "survived"):
            continue
        tests = tests_for(fault, known, given.budget)
        outcome = tried(copied, fault, tests, given.limit) if tests else None
        result = outcome.result if outcome else "survived"
        results[fault.name] = {
            "line": fault.line,
            "result": result,
            "at_first": results.get(fault.name, {}).get("at_first", result),  # before tests were written for it
            "by": outcome.by if outcome else "",
            "tests": len(tests),
            "seconds": round(outcome.seconds, 1) if outcome else 0.0,
        }
        equivalent = json.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}
        argued = {name: why for name, why in equivalent.items() if name in results}
        record = {
            "settings": {
                "seed": given.seed,
                "count": given.count,
                "rooms": given.rooms,
                "budget": given.budget,
                "limit": given.limit,
            },
            "hardware": hardware(),
            "versions": versions(),
            "summary": summary(results, argued),
            "equivalent": argued,
            "mutants": results,
        }
        write_atomic(given.out, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
        print(f"{number:>4} {results[fault.name]['result']:<9} {fault.file}:{fault.line} {fault.what}", flush=True)
    check_without_fault(copied, chosen[0].file, {r["by"] for r in results.values()} & known.seconds.keys())
    equivalent = json.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}
    found = summary(results, equivalent)
    print(json.dumps(found))
    return 0 if found["share_killed"] >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
