"""`ratenorm predict`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ratenorm.simulate.engine_name import EngineName


@dataclass(frozen=True)
class Predict:
    """Say what is on pictures: the best classes with their scores over time."""

    network: Annotated[Path, tyro.conf.Positional]
    """spiking network file, written by `ratenorm convert`"""
    pictures: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """PNG, JPEG or WebP files"""
    steps: int = 16
    """time-steps to simulate"""
    best: int = 3
    """classes to name"""
    engine: EngineName = "auto"
    """what simulates: auto, dense or event"""
    json: bool = False
    """print JSON instead of a table"""

    def run(self) -> None:
        from ratenorm.cli.options import network_file
        from ratenorm.errors import UsageError
        from ratenorm.io.files import to_json
        from ratenorm.workflows.predict import predict, table

        if not self.pictures:
            raise UsageError("Predicting: no picture was given. Give one or more files after the network.")
        found = predict(network_file(self.network), self.pictures, self.steps, self.best, self.engine)
        print(to_json(found) if self.json else table(found, self.steps))
