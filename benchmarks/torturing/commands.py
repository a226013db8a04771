"""`python -m paper` and `ratenorm convert --max-loss` under fire: SIGKILL, SIGINT and SIGTERM at random moments.

The command is given again until it is done. It must end as an unbroken one, apart from what the clock says, leave no
process behind, and say by its exit code what stopped it.
"""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from paper import presets, scale
from paper.__main__ import main as reproduce_main
from ratenorm import records
from ratenorm.cli.main import main
from ratenorm.convert.thresholds import Latency
from ratenorm.data import load
from ratenorm.io.files import is_stray
from ratenorm.io.run_folder import LOCK, holds_a_run
from ratenorm.simulate.event import available
from ratenorm.workflows import sweep
from ratenorm.workflows import train as training
from torturing.forks import child, end_after, wait
from torturing.interrupts import picture_folder

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
TINY = scale.Scale(train_images=200, test_images=20, epochs=1, steps=8)
MINUTES = re.compile(r"\d+\.\d (min|h)\b")  # of trainings, on the page of results
PRESET = "cnn7-mnist"
CLOCK = ("second", "created")  # parts of the names of what the clock says


@dataclass(frozen=True)
class Job:
    """A command that goes on where it was stopped, the words for a place to work in, and what it leaves there."""

    name: str
    words: Callable[[Path], list[str]]
    answer: Callable[[Path], Any]
    main: Callable[[list[str]], int] = main

    def run(self, place: Path) -> int:
        return self.main(self.words(place))


def timeless(value: Any) -> Any:
    """Without anything that the clock says."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if not any(word in k for word in CLOCK)}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def reproduction(folder: Path) -> Job:
    """The smallest preset with every part of it: three trainings, the choice of lambda, every method, the page."""
    # for this process and its forks: --short takes minutes, and the whole of MNIST a second each time it is unpacked
    scale.SHORT = TINY
    quick = {method.replace("spike", "spike:4"): name for method, name in presets.BASELINES.items()}
    presets.BASELINES.clear()
    presets.BASELINES.update(quick)
    object.__setattr__(presets.BY_NAME[PRESET], "lams", (0.05,))
    few = {split: load("mnist", split).subset(range(300)) for split in ("train", "test")}
    training.load = lambda name, split, root=None: few[split]  # type: ignore[assignment]

    def words(place: Path) -> list[str]:
        short = [PRESET, "--short", "--seeds", "0"]
        return [*short, "--work", str(place / "work"), "--results", str(place / "results")]

    def answer(place: Path) -> Any:
        record = records.read(place / "results" / f"{PRESET}-s0-short.json")
        return timeless(record), MINUTES.sub("", (place / "results" / "README.md").read_text())

    return Job("reproduce", words, answer, reproduce_main)


def sweeping(folder: Path) -> Job:
    """The sweep of a network trained here, over fewer settings than usual."""
    # for this process and its forks
    sweep.FACTORS, sweep.LAMBDAS, sweep.Latency = (1.0, 0.5), (0.1,), partial(Latency, steps=4)  # type: ignore
    data, network = str(picture_folder(folder / "data")), folder / "trained" / "stage1.safetensors"
    train = ["train", "--data", data, "--epochs", "2", "--batch-size", "10", "--holdout", "10", "--lr", "0.02"]
    _unbroken(lambda: main([*train, "--out", str(network.parent), "--no-stage2"]))
    options = ["--data", data, "--images", "20", "--steps", "8", "--engine", "dense", "--max-loss", "50"]

    def words(place: Path) -> list[str]:
        out = place / "net.safetensors"
        again = ["--resume"] if holds_a_run(out.with_name(f"{out.name}.sweep")) else []
        return ["convert", str(network), "--out", str(out), *options, *again]

    def answer(place: Path) -> Any:
        record = records.read(place / "net.safetensors.sweep" / records.FILE_NAME)
        return timeless(record), (place / "net.safetensors").read_bytes()

    return Job("sweep", words, answer)


JOBS: dict[str, Callable[[Path], Job]] = {"reproduce": reproduction, "sweep": sweeping}


def fire_at(
    name: str, each: int, folder: Path, rng: random.Random, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """`each` signals of each kind, at moments spread over what is left to do; counts of what went wrong."""
    began = time.monotonic()
    job = JOBS[name](folder)
    torch.optim.SGD([torch.zeros(1)])  # the first optimizer imports for seconds
    available.missing()  # imports the core here, and not in every fork
    start = time.monotonic()
    _unbroken(lambda: job.run(folder / "whole"))
    expected, length = job.answer(folder / "whole"), time.monotonic() - start
    counts = {number.name: 0 for number in SIGNALS}
    counts |= {"finished": 0, "wrong_exit_codes": 0, "orphans": 0, "different_results": 0, "strays_or_locks_left": 0}
    run, left, disturbed = 0, length, False
    while True:
        place = folder / f"run{run}"
        number = min(SIGNALS, key=lambda n: counts[n.name])
        if counts[number.name] == each:
            _unbroken(lambda place=place: job.run(place))  # type: ignore[misc]
            _compare(job, place, expected, counts)
            break
        moment = rng.uniform(0.0, max(left, length / 2))
        start = time.monotonic()
        with child(lambda place=place: job.run(place)) as process:  # type: ignore[misc]
            end = end_after(process, moment, number)
        counts["orphans"] += end.orphans
        if end.code == 0:  # done before the signal came
            _compare(job, place, expected, counts)
            if not disturbed:  # the first run of all also warms up: aim at what one takes now
                length = min(length, time.monotonic() - start)
            run, left, disturbed = run + 1, length, False
            continue
        left, disturbed = left - moment, True  # or a little more is left: not all of it was kept
        counts[number.name] += 1
        counts["wrong_exit_codes"] += end.code != 128 + number
    say(f"  {name}: {counts}")
    return {**counts, "unbroken_seconds": round(length, 1), "seconds": round(time.monotonic() - began, 1)}


def _compare(job: Job, place: Path, expected: Any, counts: dict[str, int]) -> None:
    counts["finished"] += 1
    counts["different_results"] += job.answer(place) != expected
    counts["strays_or_locks_left"] += sum(is_stray(f) or f.name == LOCK for f in place.rglob("*"))


def _unbroken(work: Callable[[], int]) -> None:
    with child(work) as number:
        end = wait(number, 600)
    if end.code:
        raise RuntimeError(f"a command that nobody disturbed ended with {end.code}")
