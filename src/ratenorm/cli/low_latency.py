"""`ratenorm low-latency`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from ratenorm.cli.options import data_config, mode, network_file
from ratenorm.data import AUGMENTS, Augment
from ratenorm.train.through_time import ThroughTime


@dataclass(frozen=True)
class LowLatency:
    """Train a network to be right within a few time-steps: convert, calibrate, then train through time."""

    network: Annotated[Path, tyro.conf.Positional]
    """network file, trained with ReLU or Rate Norm, or a name of the zoo"""
    out: Path
    """run folder: checkpoints, metrics and spiking.safetensors"""
    training: Annotated[ThroughTime, tyro.conf.arg(name="")] = field(default_factory=ThroughTime)
    """the training"""
    model: str | None = None
    """your own network as package.module:function, called without arguments; the file then holds its state_dict, and
    --data its images
    """
    data: str | None = None
    """training images (default: the set the network was trained on)"""
    root: Path | None = None
    """where the data set lies"""
    images: int | None = None
    """use only the first training images (reduced scale)"""
    resume: bool = False
    """resume a training that was stopped in this folder"""
    overwrite: bool = False
    """start again in a used folder"""
    tensorboard: bool = False
    """write the metrics for TensorBoard too, into OUT/tensorboard"""
    json: bool = False
    """print the accuracies as JSON instead of a table"""

    def run(self) -> None:
        from ratenorm.distributed import joined, wait_for_all
        from ratenorm.errors import UsageError
        from ratenorm.io.files import to_json
        from ratenorm.io.networks import load_network
        from ratenorm.io.run_folder import open_shared
        from ratenorm.io.tensorboard import TensorBoard
        from ratenorm.workflows.low_latency import SPIKING_FILE, LowLatencyConfig, low_latency

        file = network_file(self.network)
        if self.model is not None and self.data is None:
            raise UsageError(f"Training {self.model}: name its images with --data.")
        name = self.data or load_network(file)[1].dataset
        training = self.training
        if training.augment == Augment():
            training = replace(training, augment=AUGMENTS.get(name, Augment()))
        config = LowLatencyConfig(str(file), data_config(name, self.root), training, self.images, self.model)
        with (
            joined() as here,
            open_shared(self.out, mode(self.resume, self.overwrite), here.writer, wait_for_all) as folder,
        ):
            folder.configure(config.to_json())
            if self.tensorboard and here.writer:
                folder.sinks.append(TensorBoard(folder / "tensorboard"))
            result = low_latency(config, folder, show=here.writer)
            if here.writer and self.json:
                print(to_json(result.to_json()))
            elif here.writer:
                print(result)
                print(f"{self.out / SPIKING_FILE}: ratenorm evaluate runs it on test images.")
