"""Early exit in an experiment: the rule is fitted on held-out training images, its figures are of the test images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ratenorm.core.coding import Coding
from ratenorm.data import Batches, ImageSet
from ratenorm.graph.net import SpikingNet
from ratenorm.io.networks import NetworkSpec
from ratenorm.simulate.early_exit import EarlyExitResult, fit_early_exit, simulate_early_exit
from ratenorm.simulate.simulate import EngineName, simulate

BATCH = 100


def early_exit_entry(
    net: SpikingNet,
    held_out: ImageSet,
    test: ImageSet,
    spec: NetworkSpec,
    steps: int,
    engine: EngineName = "auto",
    allowed_loss: float = 0.005,
    coding: Coding | None = None,
) -> dict[str, Any]:
    """The `early_exit` entry of a record's run."""
    options: dict[str, Any] = {"engine": engine, "coding": coding}
    known = list(Batches(held_out, BATCH, normalise=spec.normalisation))
    logits = torch.cat([simulate(net, x, steps, **options).logits for x, _ in known], dim=1)
    rule = fit_early_exit(logits, torch.cat([y for _, y in known]), allowed_loss=allowed_loss)
    parts: list[EarlyExitResult] = []
    labels: list[Tensor] = []
    for number, (x, y) in enumerate(Batches(test, BATCH, normalise=spec.normalisation)):
        parts.append(simulate_early_exit(net, x, steps, rule, first_image=number * BATCH, **options))
        labels.append(y)
    whole = EarlyExitResult(
        rule, steps, torch.cat([p.logits for p in parts]), torch.cat([p.answered_at for p in parts])
    )
    return whole.to_record(torch.cat(labels))
