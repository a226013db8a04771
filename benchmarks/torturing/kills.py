"""SIGKILL at random moments of a training that writes a checkpoint after every step."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratenorm.errors import RatenormError
from ratenorm.io.files import is_stray
from ratenorm.train.checkpoint import read_checkpoint
from torturing.forks import child, end_after, wait
from torturing.subjects import train_and_keep


def kill_often(kills: int, folder: Path, rng: random.Random, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Kill trainings `kills` times and let each go on until it is done; all must end as an unbroken one."""
    began = time.monotonic()
    expected = train_and_keep(folder / "unbroken")
    start = time.monotonic()
    with child(lambda: _write_result(folder / "timed")) as number:
        wait(number)
    length = time.monotonic() - start
    done = finished = unreadable = different = swept = 0
    run = 0
    while done < kills:
        path = folder / f"run{run}"
        with child(lambda path=path: _write_result(path)) as number:  # type: ignore[misc]
            end = end_after(number, rng.uniform(0.0, length), signal.SIGKILL)
        if end.code == 128 + signal.SIGKILL:
            done += 1
            unreadable += _unreadable(path)
            swept += any(is_stray(f) for f in path.iterdir()) if path.is_dir() else 0
        elif end.code != 0:
            different += 1
        if end.code != 128 + signal.SIGKILL or done == kills:
            answer = train_and_keep(path)  # what is left of it, or, where it was done, the answer it gives again
            different += answer != expected
            finished += 1
            run += 1
        if done and done % 50 == 0 and end.code:
            say(f"  {done} kills, {finished} trainings finished, {unreadable} unreadable, {different} different")
    return {
        "kills": done,
        "trainings": finished,
        "unreadable_checkpoints": unreadable,
        "different_results": different,
        "kills_that_left_a_temporary_file": swept,
        "seconds": round(time.monotonic() - began, 1),
    }


def _write_result(path: Path) -> int:
    train_and_keep(path)
    return 0


def _unreadable(path: Path) -> int:
    found = 0
    for checkpoint in path.glob("*.checkpoint.safetensors") if path.is_dir() else ():
        try:
            read_checkpoint(checkpoint)
        except RatenormError:
            found += 1
    return found
