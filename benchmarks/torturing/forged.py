"""Files forged with a valid checksum: no damage, but intent. Refused, or read into something that can be run."""

from __future__ import annotations

import copy
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ratenorm.data import Batches
from ratenorm.io.files import read_tensors, write_tensors
from ratenorm.io.networks import load_network
from ratenorm.io.run_folder import RunFolder
from ratenorm.io.spiking import load
from ratenorm.simulate.simulate import simulate
from ratenorm.train.checkpoint import read_checkpoint
from ratenorm.train.loop import _resume
from ratenorm.train.stage1 import _AccuracyStage
from torturing.mutations import _in_child, read_once
from torturing.readers import MAKERS
from torturing.subjects import STAGE1, bands, small_network

VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 10**9, 10**12, 2**63, 10**30, 0.5, -0.5, 1e300, "", "x", "input", None, True, False),
    *([], {}, [1], [0, 0], [10**9, 10**9], [-1, -1], [1, 1, 1, 1, 1], ["x"], [[]]),
)


def forge(content: dict[str, Any], tensors: dict[str, Tensor], rng: random.Random) -> None:
    """Change one to three things."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        if tensors and rng.random() < 0.25:
            name = rng.choice(sorted(tensors))
            one = tensors[name]
            changes: tuple[Callable[[], Any], ...] = (
                lambda t=one: t.flatten(),
                lambda t=one: t[:0] if t.ndim else t,
                lambda t=one: torch.full_like(t.float(), float("nan")),
                lambda t=one: -t if t.dtype != torch.bool else t,
                lambda t=one: t.to(torch.int64),
                lambda t=one: t.double(),
                lambda t=one: t.unsqueeze(0),
                lambda t=one: torch.zeros(()),
            )
            tensors[name] = rng.choice(changes)()
            continue
        place: Any = content
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            keys = [k for k in keys if k not in ("format", "version")]
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.85:
                place = place[key]
                continue
            if rng.random() < 0.15:
                del place[key]
            else:
                place[key] = copy.deepcopy(rng.choice(VALUES))
            break


def _run_spiking(file: Path) -> None:
    net = load(file)
    x = torch.zeros(2, *net.input_shape) + 0.5
    simulate(net, x, 2, engine="dense")


def _resume_training(file: Path) -> None:
    stage = _AccuracyStage(small_network(), Batches(bands(), 10), None, STAGE1)
    folder = object.__new__(RunFolder)
    folder.path = file.parent
    at = _resume(stage, folder, read_checkpoint(file))
    if at.epoch < stage.epochs:
        for images, labels in stage.batches.epoch(at.epoch, at.batch):
            stage.step(images, labels, at.batch)
            break


USES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "network": ("ratenorm-network", load_network),
    "spiking net": ("ratenorm-spiking-net", _run_spiking),
    "checkpoint": ("ratenorm-checkpoint", _resume_training),
}


def forged(
    count: int, seed: int, names: tuple[str, ...] = tuple(USES), say: Callable[[str], None] = print
) -> dict[str, Any]:
    """`count` forged files of each kind; counts of how each ended."""
    found: dict[str, Any] = {}
    for name in names:
        kind, use = USES[name]
        with tempfile.TemporaryDirectory() as folder:
            file = MAKERS[name](Path(folder)).file
            use(file)  # whatever is imported late is imported now
            work = partial(_use_all, file, kind, use, count, seed)
            found[name] = _in_child(work, Path(folder))
        say(f"  forged {name}: {found[name]}")
    return found


def _use_all(file: Path, kind: str, use: Callable[[Path], Any], count: int, seed: int, tally: Path) -> None:
    tensors, content = read_tensors(file, kind, 2 if kind == "ratenorm-spiking-net" else 1)
    rng = random.Random(f"{seed} {file.name}")
    counts: Counter[str] = Counter()
    worst: dict[str, str] = {}
    for _ in range(count):
        new, kept = copy.deepcopy(content), dict(tensors)
        forge(new, kept, rng)
        write_tensors(file, kept, new)
        outcome, detail = read_once(lambda: use(file), None)
        outcome = {"same": "run", "accepted changed": "run"}.get(outcome, outcome)
        counts[outcome] += 1
        if outcome not in ("run", "refused"):
            worst.setdefault(f"{outcome}: {detail[:60]}", detail)
    names = ("run", "refused", "other errors", "hangs", "out of memory")
    tally.write_text(json.dumps({"files": count, **dict.fromkeys(names, 0), **counts, "examples": worst}))
