"""Whether `auto` finds the better engine: every network of the strangers' suite, and wider ones of the same kinds.

    PYTHONPATH=.:tests python benchmarks/auto.py [--names vgg densenet …] [--batch 1 16] [--turns 7] [--threads 1 2]
                                                 [--out benchmarks/results/auto.json]

The three engines take turns on the same images, and the best turn of each counts: the machine's noise only ever adds
time. A turn is as many runs as fill a twentieth of a second. Nothing else should run. Promised: `auto` takes at most
1.1 times as long as the better of the other two, everywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ratenorm import Percentile, convert, models, simulate
from ratenorm.graph.net import SpikingNet
from ratenorm.io.files import write_atomic
from ratenorm.simulate.simulate import ENGINES
from ratenorm.workflows.environment import hardware, versions
from strangers.architectures import ARCHITECTURES, shape_of, stranger

PROMISED = 1.1
TURN = 0.05  # seconds
WIDE = {"vgg11": "vgg11", "preact_resnet18": "preact_resnet18", "preact_resnet34": "preact_resnet34"}


def network(name: str) -> tuple[SpikingNet, torch.Tensor]:
    """A converted network, and images to calibrate and run it on."""
    torch.manual_seed(0)
    if name in WIDE:
        model, shape = models.build(WIDE[name], activation=nn.ReLU, num_classes=10), (3, 32, 32)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean, 0.0, 0.3)
                nn.init.uniform_(module.running_var, 0.3, 2.0)
        model.eval()
    else:
        model, shape = stranger(name), shape_of(name)
    images = torch.rand(16, *shape, generator=torch.Generator().manual_seed(0))
    return convert(model, Percentile(99.9), example=images[:1], calibration=images, v0=0.5).net, images


def timed(work: Callable[[], object]) -> float:
    """Seconds of one run, from as many as fill a turn."""
    runs, began = 0, time.perf_counter()
    while runs == 0 or time.perf_counter() - began < TURN:
        work()
        runs += 1
    return (time.perf_counter() - began) / runs


def measured(net: SpikingNet, images: torch.Tensor, steps: int, turns: int) -> dict[str, Any]:
    work = {e: (lambda e=e: simulate(net, images, steps, engine=e)) for e in ENGINES}
    for job in work.values():  # plans and caches are made once, and not here
        job()
    best = dict.fromkeys(work, float("inf"))
    for turn in range(turns):
        order = ENGINES[turn % 3 :] + ENGINES[: turn % 3]
        for engine in order:
            best[engine] = min(best[engine], timed(work[engine]))
    better = min(best["dense"], best["event"])
    return {"seconds": best, "ratio": best["auto"] / better, "event_over_dense": best["event"] / best["dense"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", default=[*sorted(ARCHITECTURES), *WIDE])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/auto.json"))
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for name in given.names:
        net, images = network(name)
        for threads in given.threads:
            torch.set_num_threads(threads)
            for batch in given.batch:
                one = measured(net, images[:batch], given.steps, given.turns)
                found[f"{name}, batch {batch}, {threads} threads"] = one
                over = "  over the promise" if one["ratio"] > PROMISED else ""
                print(
                    f"{name:<20} batch {batch:>2} threads {threads}: auto {one['ratio']:.2f} times the better engine, "
                    f"event {one['event_over_dense']:.2f} times dense{over}", flush=True
                )  # fmt: skip
                worst = max(found, key=lambda key: found[key]["ratio"])
                record = {
                    "benchmark": "auto",
                    "config": {k: v for k, v in vars(given).items() if k != "out"},
                    "seed": 0,
                    "promised": PROMISED,
                    "worst": {"network": worst, "ratio": found[worst]["ratio"]},
                    "over": sorted(key for key, value in found.items() if value["ratio"] > PROMISED),
                    "networks": found,
                    "versions": versions(),
                    "hardware": hardware(),
                }
                write_atomic(given.out, (json.dumps(record, indent=1) + "\n").encode())
    print(f"Worst: {found[worst]['ratio']:.2f} ({worst}); {len(record['over'])} of {len(found)} over {PROMISED}.")


if __name__ == "__main__":
    main()
