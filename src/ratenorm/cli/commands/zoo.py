"""`ratenorm zoo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Zoo:
    """Trained networks that come with ratenorm: list them, or add those of a finished `ratenorm reproduce`."""

    action: Annotated[Literal["list", "add"], tyro.conf.Positional]
    """list: what there is, checksums verified; add: store the networks of a preset with their cards"""
    preset: Annotated[str, tyro.conf.Positional] = ""
    """add: name of the preset (see `ratenorm reproduce --list`)"""
    seed: int = 0
    """add: seed of the training"""
    work: Path = Path("runs/reproduce")
    """add: where `ratenorm reproduce` has trained"""
    folder: Path | None = None
    """folder of the zoo (default: the one of this installation)"""
    root: Path | None = None
    """add: where the data sets lie"""
    steps: int = 64
    """add: time-steps to measure the spiking network for; 0: only the network before conversion"""
    results: Path = Path("results")
    """add: where the records of `ratenorm reproduce` are; what they have measured is not simulated again"""
    short: bool = False
    """add: the networks of `ratenorm reproduce --short`"""

    def run(self) -> None:
        from ratenorm import zoo
        from ratenorm.errors import UsageError
        from ratenorm.experiments.networks import Networks
        from ratenorm.experiments.presets import named
        from ratenorm.experiments.scale import SHORT, Scale
        from ratenorm.experiments.zoo_entries import add_to_zoo

        folder = zoo.folder() if self.folder is None else self.folder
        if self.action == "list":
            if self.preset:
                raise UsageError(
                    f"Listing the zoo: {self.preset!r} is one word too many. `zoo list` shows all networks."
                )
            if not (known := zoo.entries(folder)):
                print(f"The zoo in {folder} is empty.")
            for name, entry in sorted(known.items()):
                path = zoo.path_of(name, folder)
                print(
                    f"{name:<32} {100 * entry.accuracy:6.2f} % of {entry.data:<9} {entry.bytes / 1e6:6.2f} MB  {path}"
                )
            return
        if not self.preset:
            raise UsageError(
                "Adding to the zoo: no preset is named. Give one of `ratenorm reproduce --list`, such as `ratenorm zoo "
                "add cnn7-mnist`."
            )
        root, scale = None if self.root is None else str(self.root), SHORT if self.short else Scale()
        networks = Networks(named(self.preset), self.seed, self.work, scale, root)
        add_to_zoo(networks, folder, self.steps, print, self.results)
