"""Finished parts of an experiment are kept in its folder, so that a stopped one goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratenorm.distributed import wait_for_all, world
from ratenorm.io.files import digest_of, read_small, to_json, write_atomic
from ratenorm.io.run_folder import RunFolder

PARTS = "parts"
PART_LIMIT = 64 * 2**20  # bytes


def remembered(folder: RunFolder, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """`compute()`, or what it gave when it was done before in this folder. A damaged part is computed again."""
    if (known := recalled(folder, name)) is not None:
        return known
    wait_for_all()  # every process has looked before one writes
    result = compute()
    if world().writer:
        kept = {"name": name, "sha256": digest_of(result), "result": result}
        write_atomic(_place(folder, name), to_json(kept).encode())
    return result


def recalled(folder: RunFolder, name: str) -> dict[str, Any] | None:
    """What was computed under this name before in this folder, where it is sound."""
    path = _place(folder, name)
    if path.exists():
        try:
            kept = json.loads(read_small(path, PART_LIMIT).decode("utf-8"))
            if kept["name"] == name and kept["sha256"] == digest_of(kept["result"]):
                result: dict[str, Any] = kept["result"]
                return result
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass  # cut short or changed: not worth more than computing it anew
    return None


def _place(folder: RunFolder, name: str) -> Path:
    return folder.path / PARTS / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
