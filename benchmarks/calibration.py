"""What converting and calibrating VGG-16 on 1,000 CIFAR-sized images costs, beside one ANN pass over them.

    python benchmarks/calibration.py [--images 1000] [--repeats 3] [--out benchmarks/results/calibration.json]

The ANN pass is the module as a user has it (evaluation mode, no gradients, batches of 100). Max and Robust Norm include
tracing, folding and conversion. Measured in turn, best of several; peak memory beyond the images as growth of the
process.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from ratenorm import MaxNorm, Percentile, convert, models
from ratenorm.workflows.environment import hardware, versions


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/calibration.json"))
    args = parser.parse_args()
    torch.manual_seed(0)
    model = models.vgg16(nn.ReLU).eval()
    images = torch.randn(args.images, 3, 32, 32)

    def ann() -> None:
        with torch.no_grad():
            for batch in images.split(100):
                model(batch)

    work: dict[str, Callable[[], object]] = {
        "ann": ann,
        "max": lambda: convert(model, MaxNorm(), example=images[:1], calibration=images),
        "percentile": lambda: convert(model, Percentile(99.9), example=images[:1], calibration=images),
    }
    best = dict.fromkeys(work, float("inf"))
    memory = {}
    for _ in range(args.repeats):
        for name, job in work.items():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            best[name] = min(best[name], timed(job))
            memory.setdefault(name, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
    ratios = {name: best[name] / best["ann"] for name in work if name != "ann"}
    for name, ratio in ratios.items():
        print(
            f"{name}: {best[name]:.2f} s, {ratio:.2f} times the ANN pass ({best['ann']:.2f} s), "
            f"peak memory +{memory[name]:.0f} MiB"
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figures = {
        "benchmark": "calibration",
        "config": {k: v for k, v in vars(args).items() if k != "out"},
        "seed": 0,
        "seconds": best,
        "ratio": ratios,
        "peak_growth_mib": memory,
        "versions": versions(),
        "hardware": hardware(),
    }
    args.out.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
