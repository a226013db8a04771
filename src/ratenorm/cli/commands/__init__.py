"""One file a command. A command is a frozen dataclass whose fields are its options and whose `run` does the work."""

from __future__ import annotations

from typing import Annotated, Any, Union

import tyro

from ratenorm.cli.commands.compare import Compare
from ratenorm.cli.commands.convert import Convert
from ratenorm.cli.commands.data import Data
from ratenorm.cli.commands.demo import Demo
from ratenorm.cli.commands.diagnose import Diagnose
from ratenorm.cli.commands.doctor import Doctor
from ratenorm.cli.commands.evaluate import Evaluate
from ratenorm.cli.commands.info import Info
from ratenorm.cli.commands.report import Report
from ratenorm.cli.commands.reproduce import Reproduce
from ratenorm.cli.commands.train import Train
from ratenorm.cli.commands.watch import Watch
from ratenorm.cli.commands.zoo import Zoo

ALL: tuple[type, ...] = (
    Demo,
    Train,
    Convert,
    Evaluate,
    Compare,
    Diagnose,
    Reproduce,
    Report,
    Watch,
    Data,
    Zoo,
    Info,
    Doctor,
)


def any_command() -> Any:
    """The union of all commands, as the parser takes it."""
    return Union[tuple(Annotated[c, tyro.conf.subcommand(c.__name__.lower())] for c in ALL)]  # noqa: UP007
