"""Torture: kill, interrupt, mutate, fill the disk, spread over processes, run for long; print and keep the figures.

python benchmarks/torture.py                       the figures that we promise, about ten minutes on two cores
python benchmarks/torture.py --kills 20 --mutants 500 --only kills mutants
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratenorm.engines.simulate import ENGINES, EngineName
from ratenorm.experiments.environment import hardware, versions
from ratenorm.files import write_atomic
from torturing.commands import fire_at
from torturing.disk import fill_the_disk
from torturing.forged import forged
from torturing.forks import child, one_thread, wait
from torturing.interrupts import interrupt_often
from torturing.kills import kill_often
from torturing.memory import evaluate_many
from torturing.mutations import fuzz
from torturing.processes import compare_processes


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300, help="SIGKILLs during training")
    parser.add_argument("--interrupts", type=int, default=20, help="SIGINTs, and as many SIGTERMs")
    parser.add_argument("--shots", type=int, default=20, help="signals of each kind at reproduce, and at a sweep")
    parser.add_argument("--mutants", type=int, default=20_000, help="mutated files for each reader")
    parser.add_argument("--forged", type=int, default=2_000, help="forged files with a valid checksum, of each kind")
    parser.add_argument("--positions", type=int, default=50, help="bytes after which the disk is full")
    parser.add_argument("--images", type=int, default=1_000_000, help="images through one evaluation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="*", help="some of: kills interrupts reproduce sweep mutants forged disk processes memory"
    )
    parser.add_argument("--out", type=Path, default=Path("results/torture.json"))
    return parser.parse_args()


def trials(given: argparse.Namespace, folder: Path) -> dict[str, Callable[[], Any]]:
    def place(name: str) -> Path:
        (folder / name).mkdir()
        return folder / name

    seed = given.seed
    return {
        "kills": lambda: kill_often(given.kills, place("kills"), random.Random(seed)),
        "interrupts": lambda: interrupt_often(given.interrupts, place("interrupts"), random.Random(seed)),
        "reproduce": lambda: fire_at("reproduce", given.shots, place("reproduce"), random.Random(seed)),
        "sweep": lambda: fire_at("sweep", given.shots, place("sweep"), random.Random(seed)),
        "disk": lambda: fill_the_disk(given.positions, place("disk"), random.Random(seed)),
        "mutants": lambda: fuzz(given.mutants, seed),
        "forged": lambda: forged(given.forged, seed),
        "processes": lambda: compare_processes(place("processes")),
        "memory": lambda: {e: evaluate_in_child(given.images, e, folder) for e in ENGINES[1:]},
    }


def evaluate_in_child(images: int, engine: EngineName, folder: Path) -> Any:
    """In a process of its own, so that nothing else that ran here is measured."""
    file = folder / "memory.json"

    def work() -> int:
        file.write_text(json.dumps(evaluate_many(images, engine)))
        return 0

    with child(work, quiet=False) as number:
        end = wait(number, 3600)
    return json.loads(file.read_text()) if end.code == 0 else {"failed": end.code}


def failures(found: dict[str, Any]) -> list[str]:
    """Every promise that was not kept, in words."""
    wrong: list[str] = []

    def want(trial: str, figures: dict[str, Any], **wanted: Any) -> None:
        wrong.extend(f"{trial}: {k} is {figures.get(k)}" for k, v in wanted.items() if figures.get(k) != v)

    if "kills" in found:
        want("kills", found["kills"], unreadable_checkpoints=0, different_results=0)
    if "interrupts" in found:
        want("interrupts", found["interrupts"], wrong_exit_codes=0, orphans=0, different_results=0)
    for command in ("reproduce", "sweep"):
        if command in found:
            zero = {"wrong_exit_codes": 0, "orphans": 0, "different_results": 0, "strays_or_locks_left": 0}
            want(command, found[command], **zero)
    if "disk" in found:
        count = found["disk"]["positions"]
        want("disk", found["disk"], old_checkpoint_intact=count, reported_as_our_error=count, temporary_files_left=0)
    for kind in ("mutants", "forged"):
        for name, figures in found.get(kind, {}).items():
            zero = {"crashes": 0, "other errors": 0, "hangs": 0, "out of memory": 0}
            want(f"{kind}, {name}", {"accepted changed": 0, **figures}, **zero, **{"accepted changed": 0})
    if "processes" in found:
        equal = ("calibrated_files", "accuracies", "evaluations", "restarted_networks", "restarted_losses")
        want("processes", found["processes"], **{f"{name}_equal": True for name in equal})
        for how in ("from_the_same_state", "in_float64"):
            if not found["processes"].get(f"largest_difference_of_losses_{how}", 1.0) <= 1e-6:
                wrong.append(f"processes: losses {how.replace('_', ' ')} differ by more than 1e-6")
    for engine, figures in found.get("memory", {}).items():
        if not figures.get("growth_percent", 100) <= 5:
            wrong.append(f"memory, {engine} engine: grows by {figures.get('growth_percent')} %")
    return wrong


def main() -> int:
    one_thread()
    given = options()
    began = time.monotonic()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, trial in trials(given, Path(folder)).items():
            if given.only is None or name in given.only:
                print(f"{name} …", flush=True)
                found[name] = trial()
                print(f"  {json.dumps(found[name])}" if name != "mutants" else "", flush=True)
    if given.only is not None and given.out.exists():  # trials may be repeated one by one
        found = {**json.loads(given.out.read_text())["figures"], **found}
    wrong = failures(found)
    record = {
        "format": "ratenorm-torture",
        "version": 1,
        "config": {k: v for k, v in vars(given).items() if k not in ("out", "only")},
        "seed": given.seed,
        "versions": versions(),
        "hardware": hardware(),
        "seconds": round(time.monotonic() - began, 1),
        "figures": found,
        "failures": wrong,
    }
    write_atomic(given.out, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode())
    print(f"{given.out}: {'every promise kept' if not wrong else '; '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
