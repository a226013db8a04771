"""Torture: kill, interrupt, mutate, fill the disk, spread over processes, run for long; print and keep the figures.

python benchmarks/torture.py                       the figures that we promise, about a quarter of an hour on two cores
python benchmarks/torture.py --only kills disk     some trials; the others in the record stay as they are
python benchmarks/torture.py --kills 20 --mutants 500 --shots 1 --out small.json --work runs/small

Every finished trial is kept at once, in the record and in the work folder: give the same command again to go on after a
stop. Once all is done the work folder forgets, so that the next run tries everything anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import ratenorm
from ratenorm.errors import RatenormError
from ratenorm.io.files import to_json, write_atomic
from ratenorm.io.run_folder import RunFolder, go_on
from ratenorm.simulate.simulate import ENGINES, EngineName
from ratenorm.workflows.environment import hardware, versions
from ratenorm.workflows.resume import PARTS, remembered
from torturing.commands import fire_at
from torturing.disk import fill_the_disk
from torturing.forged import USES, forged
from torturing.forks import child, one_thread, wait
from torturing.interrupts import interrupt_often
from torturing.kills import kill_often
from torturing.memory import evaluate_many
from torturing.mutations import fuzz
from torturing.processes import compare_processes
from torturing.promises import failures
from torturing.readers import MAKERS

Trial = Callable[[Path], Any]  # in a folder of its own
COUNTS: dict[str, tuple[int, str]] = {  # what each trial takes: how many, and of what
    "kills": (300, "SIGKILLs during training"),
    "interrupts": (20, "SIGINTs, and as many SIGTERMs"),
    "shots": (20, "signals of each kind at reproduce, and at a sweep"),
    "positions": (50, "bytes after which the disk is full"),
    "mutants": (20_000, "mutated files for each reader"),
    "forged": (2_000, "forged files with a valid checksum, of each kind"),
    "images": (1_000_000, "images through one evaluation"),
}
NEEDS = {"reproduce": "shots", "sweep": "shots", "disk": "positions", "memory": "images"}  # others: of the same name
TRIALS = ("kills", "interrupts", "reproduce", "sweep", "disk", "mutants", "forged", "processes", "memory")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (count, what) in COUNTS.items():
        parser.add_argument(f"--{name}", type=int, default=count, help=f"{what} (default: {count:,})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=TRIALS, default=list(TRIALS), help="some of the trials")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/torture.json"), help="the record")
    parser.add_argument("--work", type=Path, default=Path("runs/torture"), help="where trials take place")
    return parser.parse_args()


def pieces(trial: str, given: argparse.Namespace) -> dict[str, Trial]:
    """The pieces of a trial that can be kept by themselves, by name; most trials are of one piece, without a name."""
    seed, rng = given.seed, random.Random(given.seed)
    whole: dict[str, Trial] = {
        "kills": lambda place: kill_often(given.kills, place, rng),
        "interrupts": lambda place: interrupt_often(given.interrupts, place, rng),
        "reproduce": lambda place: fire_at("reproduce", given.shots, place, rng),
        "sweep": lambda place: fire_at("sweep", given.shots, place, rng),
        "disk": lambda place: fill_the_disk(given.positions, place, rng),
        "processes": compare_processes,
    }
    if trial in whole:
        return {"": whole[trial]}
    if trial == "mutants":
        return {name: partial(_one, fuzz, given.mutants, seed, name) for name in MAKERS}
    if trial == "forged":
        return {name: partial(_one, forged, given.forged, seed, name) for name in USES}
    return {engine: partial(evaluate_in_child, given.images, engine) for engine in ENGINES[1:]}


def _one(work: Callable[[int, int, tuple[str, ...]], Any], count: int, seed: int, name: str, place: Path) -> Any:
    return work(count, seed, (name,))[name]


def evaluate_in_child(images: int, engine: EngineName, place: Path) -> Any:
    """In a process of its own, so that nothing else that ran here is measured."""
    file = place / "memory.json"

    def work() -> int:
        file.write_text(json.dumps(evaluate_many(images, engine)))
        return 0

    with child(work, quiet=False) as number:
        end = wait(number, 3600)
    found = json.loads(file.read_text()) if end.code == 0 else {"failed": end.code}
    print(f"  {engine}: {found}", flush=True)
    return found


@cache
def code() -> str:
    """A fingerprint of what is tortured and of what tortures it: a trial counts for the code it was made with."""
    digest = hashlib.sha256()
    for file in sorted([*Path(ratenorm.__file__).parent.rglob("*.py"), *Path(__file__).parent.rglob("tortur*/*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def attempt(trial: str, given: argparse.Namespace, folder: RunFolder) -> dict[str, Any]:
    """What a trial found, with how it was made. Pieces that were finished before a stop are not repeated."""
    made: dict[str, Any] = {"seed": given.seed, "versions": versions(), "hardware": hardware(), "code": code()}
    if (count := NEEDS.get(trial, trial)) in COUNTS:
        made[count] = getattr(given, count)
    figures: dict[str, Any] = {}
    seconds = 0.0
    for piece, work in pieces(trial, given).items():

        def timed(work: Trial = work) -> dict[str, Any]:
            place = folder / "trial"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            began = time.monotonic()
            found = work(place)
            shutil.rmtree(place)
            return {"figures": found, "seconds": round(time.monotonic() - began, 1)}

        kept = remembered(folder, to_json({"trial": trial, "piece": piece, **made}), timed)
        seconds += kept["seconds"]
        figures |= {piece: kept["figures"]} if piece else kept["figures"]
    return {"figures": figures, "made": {**made, "seconds": round(seconds, 1)}}


def write(given: argparse.Namespace, found: dict[str, dict[str, Any]]) -> list[str]:
    """The record so far: what was found now, and of the record there was, the trials that were not repeated."""
    old: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    earlier = {t: old["figures"][t] for t in TRIALS if t in old.get("figures", {}) and t in old.get("trials", {})}
    figures = {**earlier, **{trial: one["figures"] for trial, one in found.items()}}
    trials = {**{t: old["trials"][t] for t in earlier}, **{trial: one["made"] for trial, one in found.items()}}
    wrong = failures(figures)
    record = {
        "format": "ratenorm-torture",
        "version": 2,
        "config": {name: getattr(given, name) for name in (*COUNTS, "seed")},
        "seed": given.seed,
        "versions": versions(),
        "hardware": hardware(),
        "seconds": round(sum(trial["seconds"] for trial in trials.values()), 1),
        "trials": trials,
        "open": [trial for trial in TRIALS if trial not in trials],
        "figures": figures,
        "failures": wrong,
    }
    write_atomic(given.out, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode())
    return wrong


def main() -> int:
    one_thread()
    given = options()
    found: dict[str, dict[str, Any]] = {}
    try:
        with go_on(given.work) as folder:
            folder.configure({"torture": "any trials"})
            for trial in (t for t in TRIALS if t in given.only):
                print(f"{trial} …", flush=True)
                found[trial] = attempt(trial, given, folder)
                wrong = write(given, found)
                print(f"  {found[trial]['made']['seconds']:.0f} s", flush=True)
            shutil.rmtree(folder / PARTS, ignore_errors=True)
    except RatenormError as error:
        print(f"torture: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(
            f"torture: stopped; {', '.join(found) or 'no trial'} finished. The same command goes on.", file=sys.stderr
        )
        return 130
    print(f"{given.out}: {'every promise kept' if not wrong else '; '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
