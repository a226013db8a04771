"""`ratenorm init`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Init:
    """Write a commented configuration file: every option of a command, its meaning and its default."""

    file: Annotated[Path, tyro.conf.Positional] = Path("train.toml")
    """the file to write; it must not exist yet"""
    command: Literal["train", "low-latency", "evaluate", "compare"] = "train"
    """the command whose options it holds"""

    def run(self) -> None:
        from ratenorm.cli.commands import command_class
        from ratenorm.cli.config_file import template
        from ratenorm.errors import UsageError
        from ratenorm.io.files import write_atomic

        if self.file.exists():
            raise UsageError(f"Writing {self.file}: it exists already. Give another name, or remove it first.")
        write_atomic(self.file, template(self.command, command_class(self.command)).encode())
        print(f"{self.file}: remove the # before what you set, then ratenorm {self.command} --config {self.file}")
