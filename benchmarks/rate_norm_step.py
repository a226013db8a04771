"""What a training step with RateNorm costs beside the same step with nn.ReLU (VGG-16, batch 128), as a ratio in one
run.

    python benchmarks/rate_norm_step.py [--model vgg16] [--batch 128] [--repeats 5] [--out
    benchmarks/results/rate_norm_step.json]

The two are measured in turn, best of several: the machine's noise only ever adds time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import nn

from ratenorm import RateNorm, models
from ratenorm.core.losses import accuracy_loss
from ratenorm.workflows.environment import hardware, versions


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> float:
    began = time.perf_counter()
    loss = accuracy_loss(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/rate_norm_step.json"))
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(args.batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (args.batch,))
    nets, best = {}, {}
    for name, activation in (("relu", nn.ReLU), ("rate_norm", RateNorm)):
        model = models.build(args.model, activation=activation).to(memory_format=torch.channels_last).train()
        nets[name] = (model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True))
        step(*nets[name], x, y)  # warm up
        best[name] = float("inf")
    for _ in range(args.repeats):
        for name, (model, optimizer) in nets.items():
            best[name] = min(best[name], step(model, optimizer, x, y))
    ratio = best["rate_norm"] / best["relu"]
    print(f"{args.model}, batch {args.batch}: ReLU {best['relu']:.3f} s, RateNorm {best['rate_norm']:.3f} s")
    print(f"ratio {ratio:.3f}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figures = {
        "benchmark": "rate_norm_step",
        "config": {k: v for k, v in vars(args).items() if k != "out"},
        "seed": 0,
        "seconds": best,
        "ratio": ratio,
        "versions": versions(),
        "hardware": hardware(),
    }
    args.out.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
