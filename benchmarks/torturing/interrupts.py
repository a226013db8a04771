"""Ctrl-C and SIGTERM at random moments of `ratenorm train` and `ratenorm evaluate`."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from ratenorm import records
from ratenorm.cli.main import main
from ratenorm.io.run_folder import holds_a_run
from torturing.forks import child, end_after, wait


def picture_folder(folder: Path, count: int = 30) -> Path:
    """Two classes of 28 x 28 images."""
    generator = torch.Generator().manual_seed(0)
    for label in ("a", "b"):
        (folder / label).mkdir(parents=True)
        for i in range(count):
            pixels = torch.randint(0, 120, (28, 28), generator=generator).byte() + (100 if label == "b" else 0)
            Image.fromarray(pixels.numpy()).save(folder / label / f"{i}.png")
    return folder


def interrupt_often(each: int, folder: Path, rng: random.Random, say: Callable[[str], None] = print) -> dict[str, Any]:
    """`each` interrupts with SIGINT and with SIGTERM, in turn while training and while evaluating."""
    began = time.monotonic()
    data = str(picture_folder(folder / "data"))
    train = ["train", "--data", data, "--epochs", "3", "--batch-size", "10", "--holdout", "10", "--lr", "0.02"]
    _quietly([*train, "--out", str(folder / "whole")])
    net = str(folder / "net.safetensors")
    _quietly(["convert", str(folder / "whole" / "stage2.safetensors"), "--out", net])
    evaluate = ["evaluate", net, "--data", data, "--steps", "24", "--batch-size", "6", "--engine", "dense"]
    jobs: list[tuple[list[str], Callable[[Path], Any]]] = [(train, _weights), (evaluate, _figures)]
    wholes: list[tuple[Any, float]] = []
    for words, answer in jobs:
        start = time.monotonic()
        _quietly([*words, "--out", str(folder / "whole"), "--overwrite"])
        wholes.append((answer(folder / "whole"), time.monotonic() - start))
    counts = {
        "SIGINT": 0,
        "SIGTERM": 0,
        "wrong_exit_codes": 0,
        "orphans": 0,
        "different_results": 0,
        "came_too_late": 0,
    }
    turn = 0
    while min(counts["SIGINT"], counts["SIGTERM"]) < each:
        number = signal.SIGINT if counts["SIGINT"] <= counts["SIGTERM"] else signal.SIGTERM
        (words, answer), (expected, length) = jobs[turn % 2], wholes[turn % 2]
        path = folder / "run"
        shutil.rmtree(path, ignore_errors=True)
        with child(lambda words=words, path=path: main([*words, "--out", str(path)])) as process:  # type: ignore[misc]
            end = end_after(process, rng.uniform(0.05, length), number)
        if end.code == 0:
            counts["came_too_late"] += 1
            continue
        turn += 1
        counts[number.name] += 1
        counts["wrong_exit_codes"] += end.code != 128 + number
        counts["orphans"] += end.orphans
        _quietly([*words, "--out", str(path), *(["--resume"] if holds_a_run(path) else [])])
        counts["different_results"] += answer(path) != expected
    say(f"  {counts}")
    return {**counts, "seconds": round(time.monotonic() - began, 1)}


def _quietly(words: list[str]) -> None:
    with child(lambda: main(words)) as number:
        end = wait(number)
    if end.code:
        raise RuntimeError(f"ratenorm {' '.join(words)} ended with {end.code}")


def _weights(path: Path) -> Any:
    return [(path / f"stage{i}.safetensors").read_bytes() for i in (1, 2)]


def _figures(path: Path) -> Any:
    run = records.read(path / records.FILE_NAME)["runs"][0]
    return {key: value for key, value in run.items() if "second" not in key}
