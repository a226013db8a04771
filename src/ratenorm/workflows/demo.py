"""The demo: CNN-7 on MNIST through everything, in a few minutes on a laptop.

Trains both stages, converts the network at p = 1 and after stage 2, each with v(0) = 0 (the paper) and v(0) = theta/2,
runs all test images, and leaves a record, plots and a report.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

from ratenorm import records
from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import Trained
from ratenorm.data import Augment, Batches, ImageSet
from ratenorm.diagnose import diagnose
from ratenorm.graph.net import SpikingNet
from ratenorm.io.networks import NetworkSpec
from ratenorm.io.run_folder import RunFolder
from ratenorm.io.spiking import save
from ratenorm.simulate.simulate import EngineName
from ratenorm.train.config import Stage1, Stage2
from ratenorm.workflows.data import DataConfig
from ratenorm.workflows.early_exit import early_exit_entry
from ratenorm.workflows.evaluate import watched_evaluation
from ratenorm.workflows.examples import look_inside
from ratenorm.workflows.record import ann_entry, make_record, run_entry, scale_of
from ratenorm.workflows.resume import remembered
from ratenorm.workflows.tables import accuracy_table
from ratenorm.workflows.train import (
    STAGE2_FILE,
    TrainConfig,
    at_p_one,
    held_out_images,
    test_accuracy,
    train_network,
)

EARLY = "stage 2, v(0) = θ/2"

# Rate Norm layers hand on z (Eq. 6): thresholds scaled by p then keep the weight of the biases, and the last layer,
# which no BatchNorm follows, sees activations instead of tiny rates. See paper/NOTES.md.
DEMO_TRAINING = TrainConfig(
    model="cnn7",
    data=DataConfig("mnist"),
    stage1=Stage1(
        epochs=2,
        lr=0.1,
        batch_size=128,
        augment=Augment(shift=1),
    ),
    stage2=Stage2(lam=0.02, images=20_000),
    output="activation",
)


@dataclass(frozen=True)
class DemoConfig:
    steps: int = 256
    images: int | None = None  # test images; None: all
    engine: EngineName = "auto"
    training: TrainConfig = field(default_factory=lambda: DEMO_TRAINING)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_demo(config: DemoConfig, folder: RunFolder, say: Callable[[str], None] = print) -> dict[str, Any]:
    """The whole demo in a folder; returns the record it wrote."""
    began = time.monotonic()
    say("Training CNN-7 on MNIST: stage 1 (weights), then stage 2 (one shared p').")
    outcome = train_network(config.training, folder)
    spec = outcome.spec
    test = config.training.data.test()
    chosen = test if config.images is None else test.subset(range(min(config.images, len(test))))
    stage2 = outcome.model
    stage1 = at_p_one(folder / STAGE2_FILE)
    ann = test_accuracy(stage1, spec, chosen)
    held_out = held_out_images(config.training, 500)
    example = torch.zeros(1, *spec.input_shape)
    runs: list[dict[str, Any]] = []
    inside: list[dict[str, Any]] = []
    for label, model in (("p = 1", stage1), ("stage 2", stage2)):
        for v0, start in ((0.0, "v(0) = 0"), (0.5, "v(0) = θ/2")):
            name = f"{label}, {start}"
            net = convert(model, Trained(), example=example, v0=v0).net
            about = {"spec": spec.to_json(), "method": Trained().to_json(), "v0": v0}
            save(net, folder / f"{label.replace(' ', '').replace('=', '')}-v{v0:g}.safetensors", about)

            def one(name: str = name, net: SpikingNet = net, v0: float = v0) -> dict[str, Any]:
                result = watched_evaluation(
                    name, net, chosen, spec, config.steps, config.engine, fit_images=200, batch_size=200, folder=folder
                )
                entry = run_entry(name, spec.model, net, Trained(), v0, result)
                if name == EARLY:  # the fastest of the four
                    entry["early_exit"] = early_exit_entry(
                        net, held_out, chosen.subset(range(min(2000, len(chosen)))), spec, config.steps, config.engine
                    )
                return entry

            runs.append(remembered(folder, name, one))
            if name == EARLY:
                inside += look_inside(name, net, chosen, spec, indices=(0, 1, 8), steps=config.steps)
    plain = convert(stage1, Trained(), example=example)
    images, labels = next(iter(Batches(held_out, 100, normalise=spec.normalisation)))
    found = diagnose(plain, images, labels, steps=min(32, config.steps))
    record = make_record(
        "demo",
        "CNN-7 on MNIST: the paper's two stages, from training to spikes",
        config.to_json(),
        seed=config.training.stage1.seed,
        seconds=time.monotonic() - began,
        data={"name": "mnist", "split": "test", "images": len(chosen), "classes": list(spec.classes)},
        ann=ann_entry(spec.model, plain.analog, ann, _speed(stage1, chosen, spec)),
        runs=runs,
        scale=scale_of(len(chosen), len(test), "test images"),
        examples=inside,
        diagnosis=found.to_json(runs[0]["name"]),
        paper={"table 1": {"snn_accuracy": 0.9651, "conversion_loss": 0.0}},
    )
    records.write(folder / records.FILE_NAME, record)
    say("\n" + accuracy_table(record))
    return record


@torch.no_grad()
def _speed(model: nn.Module, images: ImageSet, spec: NetworkSpec) -> float:
    """Images a second of the network before conversion, in batches like the simulation's."""
    began, seen = time.perf_counter(), 0
    for x, _ in Batches(images.subset(range(min(2000, len(images)))), 500, normalise=spec.normalisation):
        model(x)
        seen += len(x)
    return seen / (time.perf_counter() - began)
