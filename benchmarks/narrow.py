"""Narrow layers: currents that are looked up beside spikes that are listed, of one network, bit for bit the same.

    python benchmarks/narrow.py [--networks trained.safetensors] [--steps 32] [--batches 1 16] [--repeats 5]
                                [--out benchmarks/results/narrow.json]

Both are measured in turn in one run, best of several, beside one forward pass of the ANN. Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from engine import best
from networks import Subject, subject
from ratenorm.graph.net import SpikingNet, run
from ratenorm.simulate.event import plan
from ratenorm.simulate.simulate import simulate
from ratenorm.workflows.environment import hardware, versions


def without_lookup() -> AbstractContextManager[Any]:
    return patch.object(plan, "lookup_of", lambda *_: None)


def measured(what: Subject, steps: int, batch: int, repeats: int) -> dict[str, Any]:
    """One network twice: a plan is made once for each network, with or without tables to look up."""
    x = what.images[:batch]
    own = what.conversion.net
    listed = SpikingNet(own.nodes, own.output, own.input_shape)

    def simulated(net: SpikingNet) -> Tensor:
        with without_lookup() if net is listed else nullcontext():
            return simulate(net, x, steps, engine="event").logits

    def ann() -> Tensor:
        with torch.inference_mode():
            return run(what.conversion.analog, x)

    if not torch.equal(simulated(own), simulated(listed)):
        raise SystemExit("The two do not agree: nothing was measured.")
    jobs = {"ann": ann, "looked_up": lambda: simulated(own), "listed": lambda: simulated(listed)}
    seconds = best(jobs, repeats)
    return {
        "batch": batch,
        "steps": steps,
        "milliseconds_an_image": {name: 1e3 * s / batch for name, s in seconds.items()},
        "listed_to_looked_up": seconds["listed"] / seconds["looked_up"],
        "looked_up_to_ann": seconds["looked_up"] / seconds["ann"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=Path, nargs="*", default=[], help="trained networks, their data at hand")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/narrow.json"))
    args = parser.parse_args()
    figures: dict[str, Any] = {"networks": [], "seed": 0, "versions": versions(), "hardware": hardware()}
    for file in args.networks or [None]:
        what = subject("preact_resnet20", file, max(args.batches))
        rows = [measured(what, args.steps, batch, args.repeats) for batch in args.batches]
        figures["networks"].append({**what.describe(), "batches": rows})
        print(f"{what.name}, {what.source}, T = {args.steps}")
        for row in rows:
            times = ", ".join(f"{k} {v:.2f} ms" for k, v in row["milliseconds_an_image"].items())
            print(f"  batch {row['batch']}: {times} an image; listed / looked up {row['listed_to_looked_up']:.2f}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
