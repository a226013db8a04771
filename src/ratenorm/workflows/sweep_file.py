"""The sweep of a network file, in a run folder: `ratenorm convert --max-loss`."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from ratenorm import records
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.distributed import world
from ratenorm.io.networks import load_network
from ratenorm.io.run_folder import RunFolder
from ratenorm.simulate.simulate import EngineName
from ratenorm.workflows.calibration import calibration_and_held_out
from ratenorm.workflows.data import DataConfig, held_out_split
from ratenorm.workflows.fingerprint import of_file
from ratenorm.workflows.record import ann_entry, make_record
from ratenorm.workflows.sweep import Sweep, fastest

SEED = 0  # of the choice of images


@dataclass(frozen=True)
class SweepConfig:
    """What the settings are measured on. The allowed loss only chooses among them and is no part of it."""

    network: str
    data: DataConfig = field(default_factory=DataConfig)
    images: int = 1000  # for calibration, and as many others to choose by
    steps: int = 128
    max_pool: Literal["gated", "average"] = "gated"
    engine: EngineName = "auto"
    seed: int = SEED

    def to_json(self) -> dict[str, Any]:
        """With the content of the network, so that another one in its place is not taken for it."""
        return {**asdict(self), "data": self.data.to_json(), "network_sha256": of_file(self.network)}


def sweep_file(config: SweepConfig, max_loss: float, folder: RunFolder) -> Sweep:
    """Sweep, or go on sweeping, and leave the front as a record. Finished settings are read and not run again."""
    began = time.monotonic()
    folder.configure(config.to_json())
    model, spec = load_network(config.network)
    graph, report = lower(model, torch.zeros(1, *spec.input_shape), config.max_pool)
    analog = fold(graph)
    images, held_out, labels, chosen_by = calibration_and_held_out(
        config.data.of(spec), spec, held_out_split(spec, config.network), config.images, config.seed
    )
    sweep = fastest(
        analog, report, Calibration(images), held_out, labels, max_loss, config.steps, config.engine, folder
    )
    record = make_record(
        "sweep",
        f"{spec.model} on {spec.dataset}: the fastest network within {max_loss:g} points",
        {**config.to_json(), "max_loss": max_loss, "chosen": sweep.chosen.settings, "chosen_steps": sweep.steps},
        seed=config.seed,
        seconds=time.monotonic() - began,
        data={"name": spec.dataset, "split": "train", "images": len(held_out), "classes": list(spec.classes)},
        ann=ann_entry(spec.model, analog, sweep.ann_accuracy, None),
        runs=[],
        scale=f"reduced: chosen by {chosen_by}; no test images",
        front=sweep.front,
    )
    if world().writer:
        records.write(folder / records.FILE_NAME, record)
    return sweep
