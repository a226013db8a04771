"""`ratenorm data`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

Set = Literal["mnist", "cifar10", "cifar100"]


@dataclass(frozen=True)
class Data:
    """Get or check the data sets. MNIST comes with the package; CIFAR is downloaded from its official place."""

    action: Annotated[Literal["get", "check"], tyro.conf.Positional]
    """get: download what is missing; check: say what is there"""
    name: Annotated[Set, tyro.conf.Positional]
    """mnist, cifar10 or cifar100"""
    root: Path | None = None
    """folder for data sets (default: $RATENORM_DATA or ~/.cache/ratenorm/data)"""
    url: str | None = None
    """another address of the official archive (its checksum stays the same)"""

    def run(self) -> None:
        from ratenorm import data
        from ratenorm.errors import DataError

        if self.action == "get":
            print(f"{self.name}: complete in {data.get(self.name, self.root, self.url)}")
            return
        status = data.verify(self.name, self.root)
        if not status.complete:
            raise DataError(str(status))
        print(status)
