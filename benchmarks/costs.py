"""Measured costs for docs/scaling.md: seconds a multiply-accumulate in training, seconds a synaptic operation and a
membrane update in the event engine.

    python benchmarks/costs.py [--out benchmarks/results/costs.json]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from ratenorm import models
from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import MaxNorm
from ratenorm.core.losses import accuracy_loss
from ratenorm.io.files import write_atomic
from ratenorm.simulate.simulate import simulate
from ratenorm.workflows.environment import hardware, versions

MODEL, BATCH, STEPS = "preact_resnet18", 8, 16


def training(images: torch.Tensor, macs: int) -> dict[str, float]:
    """One step forwards and backwards, best of three; three MACs backwards and forwards for every one forwards."""
    model = models.build(MODEL).train().to(memory_format=torch.channels_last)
    labels = torch.arange(len(images)) % 10
    times = []
    for _ in range(4):
        began = time.perf_counter()
        accuracy_loss(model(images), labels).backward()
        times.append(time.perf_counter() - began)
    best = min(times[1:])
    return {"seconds_an_image": best / len(images), "macs_a_second": 3 * macs * len(images) / best}


def simulation(images: torch.Tensor) -> tuple[dict[str, float], int]:
    """T steps of the event engine, best of three, and the MACs of one forward pass."""
    torch.manual_seed(0)
    net = convert(
        models.build(MODEL, activation=torch.nn.ReLU).eval(), MaxNorm(), example=images[:1], calibration=images
    ).net
    times = []
    for _ in range(4):
        began = time.perf_counter()
        result = simulate(net, images, STEPS)
        times.append(time.perf_counter() - began)
    best, ops = min(times[1:]), float(result.synaptic_ops.sum())
    updates = sum(net.neurons.values()) * len(images) * STEPS
    figures = {
        "seconds_an_image_and_step": best / len(images) / STEPS,
        "seconds_a_synaptic_operation": best / ops,
        "synaptic_operations_an_image_and_step": ops / len(images) / STEPS,
        "membrane_updates_an_image_and_step": updates / len(images) / STEPS,
        "spikes_a_neuron_and_step": float(result.spikes_per_step.sum()) / updates,
    }
    return figures, sum(net.macs.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/costs.json"))
    given = parser.parse_args()
    images = torch.rand(BATCH, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    spiking, macs = simulation(images)
    found: dict[str, Any] = {
        "config": {"model": MODEL, "batch": BATCH, "steps": STEPS, "macs": macs},
        "seed": 0,
        "versions": versions(),
        "hardware": hardware(),
        "training": training(images.contiguous(memory_format=torch.channels_last), macs),
        "simulation": spiking,
    }
    write_atomic(given.out, (json.dumps(found, indent=1, sort_keys=True) + "\n").encode())
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
