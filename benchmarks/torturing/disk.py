"""The disk is full after k bytes of a new checkpoint: the old one must be there, whole, and the next one must succeed.

The kernel itself cuts the writing short (RLIMIT_FSIZE), at the exact byte; the error differs from a full disk's in its
number alone.
"""

from __future__ import annotations

import random
import resource
import signal
from pathlib import Path
from typing import Any

import torch

from ratenorm.errors import StorageError
from ratenorm.io.files import is_stray
from ratenorm.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from torturing.forks import child, wait


def fill_the_disk(positions: int, folder: Path, rng: random.Random) -> dict[str, Any]:
    """Cut the writing of a checkpoint short at `positions` different bytes, its first and last among them."""
    path = folder / "checkpoint.safetensors"
    old, new = (Checkpoint({"w": torch.full((5000,), float(i))}, {"epoch": i}) for i in (1, 2))
    write_checkpoint(path, new)
    size = path.stat().st_size
    write_checkpoint(path, old)
    content = path.read_bytes()
    cuts = sorted({0, 1, size - 1, *rng.sample(range(2, size - 1), positions - 3)})
    intact = told = strays = 0
    for cut in cuts:
        with child(lambda cut=cut: _write(path, new, cut)) as number:  # type: ignore[misc]
            told += wait(number).code == 0
        intact += path.read_bytes() == content and read_checkpoint(path).progress == {"epoch": 1}
        strays += sum(is_stray(f) for f in folder.iterdir())
    write_checkpoint(path, new)
    later = read_checkpoint(path).progress == {"epoch": 2}
    return {
        "positions": len(cuts),
        "old_checkpoint_intact": intact,
        "reported_as_our_error": told,
        "temporary_files_left": strays,
        "next_checkpoint_succeeds": later,
    }


def _write(path: Path, checkpoint: Checkpoint, limit: int) -> int:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then the write itself fails
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        write_checkpoint(path, checkpoint)
    except StorageError:
        return 0
    return 1
