"""One file a command. A command is a frozen dataclass whose fields are its options and whose `run` does the work."""

from __future__ import annotations

from typing import Annotated, Any, Union

import tyro

from ratenorm.cli.compare import Compare
from ratenorm.cli.convert import Convert
from ratenorm.cli.data import Data
from ratenorm.cli.demo import Demo
from ratenorm.cli.diagnose import Diagnose
from ratenorm.cli.doctor import Doctor
from ratenorm.cli.evaluate import Evaluate
from ratenorm.cli.info import Info
from ratenorm.cli.low_latency import LowLatency
from ratenorm.cli.report import Report
from ratenorm.cli.train import Train
from ratenorm.cli.watch import Watch
from ratenorm.cli.zoo import Zoo

ALL: tuple[type, ...] = (
    Demo,
    Train,
    Convert,
    LowLatency,
    Evaluate,
    Compare,
    Diagnose,
    Report,
    Watch,
    Data,
    Zoo,
    Info,
    Doctor,
)


def _name(command: type) -> str:
    """LowLatency is called low-latency."""
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in command.__name__).lstrip("-")


def any_command() -> Any:
    """The union of all commands, as the parser takes it."""
    return Union[tuple(Annotated[c, tyro.conf.subcommand(_name(c))] for c in ALL)]  # noqa: UP007
