"""`ratenorm info`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Info:
    """Say what is in a file: network, spiking network, checkpoint or record."""

    file: Annotated[Path, tyro.conf.Positional]
    """a file that ratenorm wrote"""

    def run(self) -> None:
        from ratenorm.workflows.describe import describe

        print(describe(self.file))
