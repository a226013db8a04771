"""`ratenorm compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ratenorm.cli.options import data_config, mode, network_file
from ratenorm.simulate.engine_name import EngineName


@dataclass(frozen=True)
class Compare:
    """Convert one network with several methods and run them all: one record, one table."""

    network: Annotated[Path, tyro.conf.Positional]
    """network file, trained with Rate Norm or ReLU"""
    out: Path
    """run folder for the record"""
    model: str | None = None
    """your own network as package.module:function, called without arguments; the file then holds its state_dict, and
    --data its images
    """
    methods: tuple[str, ...] = (
        "recommended",
        "recommended+step-bias@4",
        "max",
        "max/0.5",
        "percentile:99.9",
        "omega:2",
        "channel",
        "spike",
        "scaled:0.8:spike",
        "data",
        "model",
    )
    """methods to compare: trained, max, percentile:99.9, omega:2, channel, spike:64, scaled:0.8:spike, data, model,
    latency:0.1. METHOD/0.5 sets its start potential; METHOD+step-bias@4 calibrates it for T = 4 after conversion
    """
    v0: tuple[float, ...] = (0.0,)
    """start potentials, as fractions of the threshold; every method runs with each"""
    data: str | None = None
    """test and calibration images (default: the set the network was trained on)"""
    root: Path | None = None
    """where the data set lies"""
    steps: int = 128
    """time-steps to simulate"""
    images: int | None = None
    """test images to run (default: all)"""
    calibration: int = 1000
    """training images for the methods that need some"""
    engine: EngineName = "auto"
    """what simulates: auto, dense or event"""
    coding: Literal["constant", "poisson"] = "constant"
    """how images enter"""
    seed: int = 0
    """of the choice of calibration images and of Poisson coding"""
    resume: bool = False
    """resume an earlier comparison in the folder"""
    overwrite: bool = False
    """start again in a used folder"""
    json: bool = False
    """print JSON instead of a table"""

    def run(self) -> None:
        from ratenorm.errors import UsageError
        from ratenorm.io.files import to_json
        from ratenorm.io.networks import load_network
        from ratenorm.io.run_folder import RunFolder
        from ratenorm.workflows.compare import CompareConfig, compare
        from ratenorm.workflows.loud import warnings_of
        from ratenorm.workflows.tables import accuracy_table, best_lines

        if self.model is not None and self.data is None:
            raise UsageError(f"Comparing on {self.model}: name its images with --data.")
        name = self.data or load_network(network_file(self.network))[1].dataset
        config = CompareConfig(
            str(network_file(self.network)),
            self.methods,
            data_config(name, self.root),
            self.v0,
            self.steps,
            self.images,
            self.calibration,
            self.engine,
            self.coding,
            self.seed,
            model=self.model,
        )
        with RunFolder(self.out, mode(self.resume, self.overwrite)) as folder:
            folder.configure(config.to_json())
            record = compare(config, folder)
            if self.json:
                print(to_json(record))
                return
            print(accuracy_table(record))
            print(best_lines(record))
            for line in warnings_of(record)[:1]:
                print(line)
