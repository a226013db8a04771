"""`ratenorm reproduce`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Reproduce:
    """Reproduce the paper: train what is missing, resume what was cut, evaluate all methods, write records and
    tables.
    """

    presets: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """names of presets (see --list), or parts of them: mnist, vgg16, cifar10; default: all"""
    list: bool = False
    """show the presets and leave"""
    seeds: tuple[int, ...] | None = None
    """seeds to run (default: those of each preset)"""
    work: Path = Path("runs/reproduce")
    """where trainings live; give the same folder again to go on"""
    results: Path = Path("results")
    """where records and README.md are written"""
    root: Path | None = None
    """where the data sets lie"""
    short: bool = False
    """prove the presets by a short run on a subset"""

    def run(self) -> None:
        from ratenorm.errors import UsageError
        from ratenorm.experiments.presets import ALL
        from ratenorm.experiments.reproduce import SHORT, Scale, reproduce
        from ratenorm.experiments.results_page import write_page

        chosen = [p for p in ALL if not self.presets or any(part in p.name for part in self.presets)]
        if not chosen:
            known = ", ".join(p.name for p in ALL)
            raise UsageError(f"Reproducing: no preset is called like {', '.join(self.presets)}. There are: {known}.")
        if self.list:
            for p in chosen:
                training = f"{p.relu.epochs} + {p.rnl.epochs} epochs, seeds {p.seeds}, T = {p.steps}"
                print(f"{p.name:<25} {p.where:<32} {training}{'; ' + p.note if p.note else ''}")
            return
        root = None if self.root is None else str(self.root)
        for preset in chosen:
            for seed in self.seeds or preset.seeds:
                reproduce(preset, seed, self.work, self.results, SHORT if self.short else Scale(), root, print)
                print(f"{write_page(self.results)} is up to date")
