"""A million images through an evaluation: the memory must not grow."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from ratenorm.simulate.evaluate import Evaluation, evaluate
from ratenorm.simulate.simulate import EngineName
from torturing.subjects import bands, small_spiking_net

BATCH, STEPS = 1000, 4


def evaluate_many(images: int, engine: EngineName = "auto") -> dict[str, Any]:
    """Resident memory after every tenth of the images, and how far it rises above the first; the set is repeated."""
    net, some = small_spiking_net(), bands(BATCH)
    sizes: list[int] = []

    def repeated() -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(images // BATCH):
            yield some.images.clone(), some.labels

    def note(so_far: Evaluation) -> None:
        sizes.append(_resident())

    began = time.monotonic()
    result = evaluate(net, repeated(), STEPS, engine=engine, fit_images=BATCH, progress=note)
    warm = sizes[len(sizes) // 10]
    return {
        "images": result.images,
        "engine": result.engine,
        "resident_mb_after_each_tenth": [
            round(size / 2**20, 1) for size in sizes[len(sizes) // 10 - 1 :: len(sizes) // 10]
        ],
        "growth_percent": round(100 * (max(sizes[len(sizes) // 10 :]) / warm - 1), 2),
        "seconds": round(time.monotonic() - began, 1),
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
