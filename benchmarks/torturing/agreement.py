"""Training by several processes against one: the same losses for the same batch from the same state.

A sum over two halves is rounded differently from a sum over the whole, and training amplifies any difference: an input
that lies next to the kink of an activation falls on one side or on the other, and its gradient is there or is not. So
two trainings in float32 drift apart whoever adds up, and what can be asked for is asked for in two ways:

- "lead" and "follow": several processes train and keep the state before every step; one process then takes each step
  from that state with the same batch. Its losses are those of the leaders.
- "double": whole trainings of both stages in float64, each on its own. Rounding is too small to matter there: whatever
  differs is computed differently.

"own" and "reversed" show the drift for what it is: two trainings in float32, and one by a single process that only sees
the images of every batch in reverse order. "sums" is a single process that adds up in BatchNorm as several do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ratenorm.core.rate_norm import RateNorm
from ratenorm.data import ImageSet, load_folder, measure_normalisation
from ratenorm.distributed import joined, wait_for_all, world
from ratenorm.io.run_folder import open_shared
from ratenorm.models import build
from ratenorm.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from ratenorm.train.config import Stage1, Stage2
from ratenorm.train.global_batch_norm import _forward as normalised_over_processes
from ratenorm.train.stage1 import _AccuracyStage, train_accuracy
from ratenorm.train.stage2 import _LatencyStage, train_latency
from torturing.forks import one_thread
from torturing.subjects import STAGE1, STAGE2, bands, small_network

Kind = Literal["lead", "follow", "double", "own", "reversed", "sums"]
Step = Callable[[Any, Tensor, Tensor, int], dict[str, float]]
STAGES = (_AccuracyStage, _LatencyStage)


class Wide(nn.Module):
    """A network computed in float64, whatever it is given."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.double()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.network(x.double())
        return result


def losses(out: Path, kind: Kind, images: ImageSet, model: nn.Module, stage1: Stage1, stage2: Stage2) -> list[float]:
    """Of every step of both stages, trained in `out` as `kind` says. "lead" leaves states there for "follow"."""
    found: list[float] = []
    plain = {stage: stage.step for stage in STAGES}

    def watched(step: Step) -> Step:
        def taken(stage: Any, x: Tensor, labels: Tensor, number: int) -> dict[str, float]:
            state = out / "states" / f"{len(found)}.safetensors"
            if kind == "follow":
                stage.restore_(read_checkpoint(state))
            if kind == "lead" and world().writer:
                write_checkpoint(state, Checkpoint(stage.state(), {}))
            if kind == "reversed":
                x, labels = x.flip(0), labels.flip(0)
            figures = step(stage, x, labels, number)
            found.append(figures["loss"])
            return figures

        return taken

    for layer in model.modules():
        if kind == "sums" and isinstance(layer, nn.BatchNorm2d):
            layer.__dict__["forward"] = partial(normalised_over_processes, layer)
    with open_shared(out / f"{kind}-{world().size}", "new", world().writer, wait_for_all) as folder:
        folder.configure({"kind": kind})
        network = Wide(model) if kind == "double" else model
        try:
            for stage, step in plain.items():
                stage.step = watched(step)  # type: ignore[assignment]
            options: dict[str, Any] = {"normalise": measure_normalisation(images), "run": folder, "show": False}
            train_accuracy(network, images, replace(stage1, checkpoint_minutes=60.0), **options)
            train_latency(network, images, replace(stage2, checkpoint_minutes=60.0), **options)
        finally:
            for stage, step in plain.items():
                stage.step = step  # type: ignore[assignment]
    return found


def losses_on(out: Path, kind: Kind, pictures: Path | None) -> list[float]:
    """CNN-7 on a folder of images, or a small network on bands."""
    if pictures is None:
        return losses(out, kind, bands(), small_network(), replace(STAGE1, lr=0.001), STAGE2)
    torch.manual_seed(0)
    model = build("cnn7", activation=RateNorm, num_classes=2, channels=1)
    stage1 = Stage1(epochs=4, batch_size=10, lr=0.0005, holdout=20)
    return losses(out, kind, load_folder(pictures), model, stage1, Stage2(lam=0.5, batch_size=10, holdout=20))


def largest_gap(one: list[float], other: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def main(out: Path, pictures: Path, kinds: list[Kind]) -> None:
    one_thread()
    with joined() as here:
        for kind in kinds:
            found = losses_on(out, kind, pictures)
            if here.writer:
                (out / f"{kind}-{here.size}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [kind for kind in get_args(Kind) if kind in sys.argv[3:]])
