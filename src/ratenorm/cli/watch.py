"""`ratenorm watch`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Watch:
    """Follow a running training in the terminal. Reads its folder, writes nothing, and may be closed at any time."""

    run_folder: Annotated[Path, tyro.conf.Positional]
    """the folder of the run"""
    once: bool = False
    """show the state now and leave"""
    interval: float = 2.0
    """seconds between looks"""

    def run(self) -> None:
        from ratenorm import report

        report.watch(self.run_folder, once=self.once, interval=self.interval)
