"""Random networks on the event engine, on every instruction set, beside the dense engine: every number must be equal.

    python benchmarks/fuzz.py [--runs 100000] [--first-seed 0] [--out benchmarks/results/fuzz.json]

A seed gives a network over every operation of the graph (tests/simulate/event/random_graphs.py) and batches of
images, each with a coding, the portions in which steps are taken, and a number of threads. A run is one simulation on
the event engine. Each is compared with the dense engine: logits, spikes, synaptic operations, counts, potentials, first
spikes. Results are written now and then; they name the seeds. The exit code is 1 where any run differs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from ratenorm.core.coding import Constant, Poisson
from ratenorm.simulate.dense import DenseSimulation
from ratenorm.simulate.event import _core
from ratenorm.simulate.event.plan import INSTRUCTION_SET
from ratenorm.simulate.event.simulation import EventSimulation
from ratenorm.simulate.result import SimResult
from ratenorm.workflows.environment import hardware, versions

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/simulate/event"))
from random_graphs import random_images, random_net

WRITTEN_EVERY = 100  # seeds
ROUNDS = 4  # batches of images for each network


def differences(ours: SimResult, theirs: SimResult) -> list[str]:
    """What is not equal, by name."""
    found = [] if torch.equal(ours.logits, theirs.logits) else ["logits"]
    for a, b in zip(ours.layers, theirs.layers, strict=True):
        parts = ["counts", "spikes", "synaptic_ops", "potential"] + ["first_spike"] * (a.first_spike is not None)
        found += [f"{a.name}.{part}" for part in parts if not torch.equal(getattr(a, part), getattr(b, part))]
    relays = zip(ours.relays, theirs.relays, strict=True)
    return found + [name for (name, a), (_, b) in relays if not torch.equal(a, b)]


def portions(chosen: random.Random, steps: int) -> list[int]:
    """The steps in one piece, or in several."""
    cuts = sorted(chosen.sample(range(1, steps), min(steps - 1, chosen.choice((0, 0, 1, 3)))))
    return [b - a for a, b in zip([0, *cuts], [*cuts, steps], strict=True)]


def simulated(going: DenseSimulation | EventSimulation, sizes: list[int]) -> SimResult:
    for size in sizes:
        going.advance(size)
    return going.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/fuzz.json"))
    args = parser.parse_args()
    sets, began = _core.instruction_sets(), time.perf_counter()
    runs, kinds, wrong = Counter[str](), Counter[str](), list[dict[str, Any]]()
    seed = args.first_seed
    while runs.total() < args.runs:
        chosen = random.Random(seed)
        net = random_net(seed)
        kinds.update(node.op.kind for node in net.nodes)
        for _ in range(ROUNDS):
            images, steps = chosen.randint(1, 5), chosen.randint(1, 70)
            x = random_images(net, images, chosen.randrange(10**9))
            coding = chosen.choice((Constant(), Constant(), Poisson(amplitude=2.0, seed=3)))
            more = chosen.random() < 0.25  # fit and first spikes as well
            expected = simulated(DenseSimulation(net, x, coding, fit=more, first_spikes=more), [steps])
            for instruction_set, choose in itertools.product(sets, (False, True)):
                os.environ[INSTRUCTION_SET] = instruction_set
                torch.set_num_threads(chosen.choice((1, 1, 1, 1, 1, 1, 2, 3)))
                event = EventSimulation(net, x, coding, fit=more, first_spikes=more, choose=choose)
                found = simulated(event, portions(chosen, steps))
                torch.set_num_threads(1)
                runs[instruction_set] += 1
                if differ := differences(found, expected):
                    wrong.append({"seed": seed, "set": instruction_set, "choose": choose, "differ": differ})
                    print(wrong[-1], flush=True)
        seed += 1
        if seed % WRITTEN_EVERY == 0 or runs.total() >= args.runs:
            figures = {
                "runs": runs.total(),
                "runs_by_instruction_set": dict(runs),
                "seeds": [args.first_seed, seed - 1],
                "operations": dict(sorted(kinds.items())),
                "wrong": wrong,
                "seconds": time.perf_counter() - began,
                "versions": versions(),
                "hardware": hardware(),
            }
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(f"{runs.total()} runs, seeds {args.first_seed} to {seed - 1}: {len(wrong)} differ")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
