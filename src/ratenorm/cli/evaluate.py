"""`ratenorm evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ratenorm.cli.options import data_config, mode, network_file
from ratenorm.simulate.engine_name import EngineName


@dataclass(frozen=True)
class Evaluate:
    """Run a spiking network over a labelled set: accuracy after every step, spikes, energy, K curves."""

    network: Annotated[Path, tyro.conf.Positional]
    """spiking network file, written by `ratenorm convert`, or a name of the zoo"""
    out: Path
    """run folder for the record"""
    data: str | None = None
    """mnist, cifar10, cifar100 or an image folder (default: the set the network was trained on)"""
    root: Path | None = None
    """where the data set lies"""
    split: Literal["test", "train"] = "test"
    """which part of the set"""
    steps: int = 64
    """time-steps to simulate"""
    images: int | None = None
    """images to run (default: all)"""
    batch_size: int = 200
    """images at a time"""
    engine: EngineName = "auto"
    """what simulates: auto, dense or event"""
    coding: Literal["constant", "poisson"] = "constant"
    """how images enter: as a constant current, or as random spikes"""
    seed: int = 0
    """of Poisson coding"""
    fit_images: int = 1000
    """images on which K curves are measured"""
    early_exit: float | None = None
    """also answer as soon as an answer is settled, losing at most so many points of accuracy (such as 0.5); the rule is
    fitted on 1,000 training images, chosen by --seed as a training chooses those it holds out"""
    resume: bool = False
    """resume an earlier evaluation in the folder"""
    overwrite: bool = False
    """start again in a used folder"""
    json: bool = False
    """print JSON instead of tables"""

    def run(self) -> None:
        from ratenorm.distributed import joined, wait_for_all
        from ratenorm.io.files import to_json
        from ratenorm.io.run_folder import open_shared
        from ratenorm.io.spiking import load_with_about
        from ratenorm.workflows.evaluate import EvaluateConfig, evaluate_file, spec_of
        from ratenorm.workflows.loud import warnings_of
        from ratenorm.workflows.tables import accuracy_table, engine_lines

        file = network_file(self.network)
        _, about = load_with_about(file)
        name = self.data or spec_of(about, str(file)).dataset
        config = EvaluateConfig(
            network=str(file),
            data=data_config(name, self.root),
            split=self.split,
            steps=self.steps,
            images=self.images,
            batch_size=self.batch_size,
            engine=self.engine,
            coding=self.coding,
            seed=self.seed,
            fit_images=self.fit_images,
            early_exit=self.early_exit,
        )
        with joined() as here:
            with open_shared(self.out, mode(self.resume, self.overwrite), here.writer, wait_for_all) as folder:
                folder.configure(config.to_json())
                record = evaluate_file(config, folder)
            if here.writer and self.json:
                print(to_json(record))
            elif here.writer:
                print(accuracy_table(record))
                print(engine_lines(record["runs"][0]))
                for line in warnings_of(record):
                    print(line)
