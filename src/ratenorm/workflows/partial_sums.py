"""The sums of an unfinished evaluation, kept in a folder, so that a stopped one goes on with the next batch.

Every process keeps its own sums beside the others'. They are exact (whole numbers, and floats that JSON gives back bit
for bit) and are added to in the same order, so that an evaluation stopped anywhere ends with the figures of an unbroken
one.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ratenorm.distributed import world
from ratenorm.graph.net import SpikingNet
from ratenorm.io.files import digest_of, read_small, to_json, write_atomic
from ratenorm.simulate.evaluate import Evaluation, LayerTotals
from ratenorm.simulate.result import Fit
from ratenorm.workflows import fingerprint
from ratenorm.workflows.resume import PART_LIMIT

SECONDS = 20.0  # between two savings: what a kill costs at most


class PartialSums:
    """Where the sums of one evaluation are kept, in `place`; `about` is all that it depends on besides the network.
    There may be some `elsewhere` too: it goes on from those that are further.
    """

    def __init__(
        self,
        place: Path,
        net: SpikingNet,
        about: dict[str, Any],
        seconds: float = SECONDS,
        *,
        elsewhere: Path | None = None,
    ) -> None:
        here = world()
        self.key = hashlib.sha256((fingerprint.of_graph(net) + to_json({**about, **asdict(here)})).encode()).hexdigest()
        name = f"{self.key[:16]}.sums.json"
        self.path = place / name
        self.paths = [self.path, *([] if elsewhere is None else [elsewhere / name])]
        self.seconds = seconds
        self.saved = time.monotonic()

    def load(self, steps: int) -> tuple[Evaluation, int]:
        """The sums and the number of batches in them; nothing where there is nothing, or nothing sound."""
        return max((self._read(path, steps) for path in self.paths), key=lambda found: found[1])

    def _read(self, path: Path, steps: int) -> tuple[Evaluation, int]:
        try:
            kept = json.loads(read_small(path, PART_LIMIT).decode("utf-8"))
            if kept["key"] == self.key and kept["sha256"] == _digest(kept):
                return _evaluation(kept["sums"]), int(kept["batches"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass  # not there, cut short or changed: not worth more than computing it anew
        return Evaluation(steps), 0

    def save(self, sums: Evaluation, batches: int) -> None:
        kept: dict[str, Any] = {"key": self.key, "batches": batches, "sums": _plain(asdict(sums))}
        write_atomic(self.path, to_json({**kept, "sha256": _digest(kept)}).encode())
        self.saved = time.monotonic()

    def save_if_due(self, sums: Evaluation, batches: int) -> None:
        if time.monotonic() - self.saved >= self.seconds:
            self.save(sums, batches)

    def forget(self) -> None:
        """The evaluation is finished and its figures are kept elsewhere."""
        for path in self.paths:
            path.unlink(missing_ok=True)


def _digest(kept: dict[str, Any]) -> str:
    return digest_of([kept["key"], kept["batches"], kept["sums"]])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value.tolist() if isinstance(value, Tensor) else value


def _evaluation(sums: dict[str, Any]) -> Evaluation:
    def floats(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    def layer(kept: dict[str, Any]) -> LayerTotals:
        fit = kept["fit"]
        return LayerTotals(
            **{
                **kept,
                "spikes": floats(kept["spikes"]),
                "synaptic_ops": floats(kept["synaptic_ops"]),
                "rates": torch.tensor(kept["rates"], dtype=torch.int64),
                "fit": None if fit is None else Fit(floats(fit["error"]), fit["total"], fit["power"]),
            }
        )

    return Evaluation(
        **{
            **sums,
            "correct": torch.tensor(sums["correct"], dtype=torch.int64),
            "relay_ops": floats(sums["relay_ops"]),
            "layers": [layer(entry) for entry in sums["layers"]],
        }
    )
