"""What one process and two must agree on: run alone, or by torchrun. With `die`, a worker dies in its first life.

The several leave the state before every step in STATES; the one takes its steps from there (torturing/agreement.py).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import parse
from ratenorm.core.coding import Poisson
from ratenorm.data import Batches
from ratenorm.distributed import World, joined, restarts, wait_for_all
from ratenorm.io.run_folder import open_shared
from ratenorm.simulate.evaluate import Evaluation, evaluate
from ratenorm.train.stage1 import _AccuracyStage, train_accuracy
from ratenorm.train.stage2 import train_latency
from ratenorm.workflows.evaluate import parts
from torturing.agreement import Wide, losses_on
from torturing.forks import one_thread
from torturing.subjects import STAGE1, STAGE2, bands, small_network, small_spiking_net

METHODS = ("max", "percentile:99", "channel", "spike:8", "data")


def train(out: Path, here: World) -> list[float]:
    """In float64, where rounding is too small to be amplified: what differs then is computed differently."""
    with open_shared(out, "new", here.writer, wait_for_all) as folder:
        folder.configure({"same": "for all"})
        model = Wide(small_network())
        first = train_accuracy(model, bands(), STAGE1, run=folder, show=False)
        second = train_latency(model, bands(), STAGE2, run=folder, show=False)
    return [entry["loss"] for entry in first.history + second.history]


def calibrate(here: World) -> dict[str, list[float]]:
    images = bands().images
    found: dict[str, list[float]] = {}
    for name in METHODS:
        own = Calibration(images[here.rank :: here.size], shared=True)
        model = small_network(activation=_relu()).eval()
        net = convert(model, parse(name), example=images[:1], calibration=own).net
        found[name] = [float(v) for node in net.populations for v in node.op.threshold.flatten()]
    return found


def _relu() -> type:
    from torch import nn

    return nn.ReLU


def count(here: World) -> dict[str, object]:
    batches = Batches(bands(), 22, rank=here.rank, world_size=here.size)
    result: Evaluation = evaluate(small_spiking_net(), parts(batches), 6, engine="dense", coding=Poisson(1.0, 3))
    layers = [(x.spikes.tolist(), x.synaptic_ops.tolist(), x.rates.tolist(), x.dead, x.negative) for x in result.layers]
    return {"images": result.images, "correct": result.correct.tolist(), "layers": layers}


def main(out: Path, states: Path, die: bool) -> None:
    one_thread()
    with joined() as here:
        if die and here.rank == 1 and restarts() == 0:
            plain, steps = _AccuracyStage.step, []

            def step(self: _AccuracyStage, *arguments: object) -> dict[str, float]:
                steps.append(1)
                if len(steps) == 8:
                    os.kill(os.getpid(), signal.SIGKILL)
                return plain(self, *arguments)  # type: ignore[arg-type]

            _AccuracyStage.step = step  # type: ignore[method-assign]
        losses = train(out / "run", here)
        steps = losses_on(states, "lead" if here.size > 1 else "follow", None)
        figures = {
            "losses": losses,
            "steps": steps,
            "thresholds": calibrate(here),
            "counts": count(here),
            "restarts": restarts(),
        }
        if here.writer:
            (out / "figures.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), "die" in sys.argv)
