"""The commands. Each is a frozen dataclass in a file of its own: its fields are its options, `run` does the work.

A command is loaded when it is asked for, so that `ratenorm --help` takes no time.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Any, Protocol, get_args, get_type_hints

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("Demo", "Train CNN-7 on MNIST, convert it, and build a report: a first look in a few minutes."),
    "init": ("Init", "Write a commented configuration file for a command."),
    "train": ("Train", "Train a network: stage 1 for accuracy, stage 2 for latency."),
    "convert": ("Convert", "Convert a trained network file into a spiking one."),
    "low-latency": ("LowLatency", "Train a network to be right within a few time-steps."),
    "evaluate": ("Evaluate", "Run a spiking network over a labelled set: accuracy after each step, spikes, energy."),
    "compare": ("Compare", "Convert one network with several methods and run them all."),
    "export": ("Export", "Write a spiking network for other simulators (NIR) or for hardware (tables), and check it."),
    "predict": ("Predict", "Say what is on pictures: the best classes with their scores over time."),
    "diagnose": ("Diagnose", "Say where a converted network loses accuracy, and what to try."),
    "report": ("Report", "Build one HTML page from records."),
    "watch": ("Watch", "Follow a running training in the terminal."),
    "data": ("Data", "Get or check the data sets."),
    "zoo": ("Zoo", "List the trained networks that come with ratenorm."),
    "info": ("Info", "Say what is in a file."),
    "doctor": ("Doctor", "Check this installation."),
}

EXAMPLES = (
    ("A first look", "ratenorm demo"),
    ("Train", "ratenorm train --model cnn7 --data mnist --out runs/a"),
    ("From a file", "ratenorm init train.toml; ratenorm train --config train.toml --out runs/a"),
    ("Convert", "ratenorm convert runs/a/stage2.safetensors --out net.safetensors"),
    ("Few steps", "ratenorm low-latency cnn7-mnist-relu --steps 4 --out runs/b"),
    ("Evaluate", "ratenorm evaluate net.safetensors --steps 64 --out runs/c"),
    ("Compare methods", "ratenorm compare vgg16-cifar10-relu --out runs/d"),
    ("Export", "ratenorm export net.safetensors --to nir --out net.nir --check sinabs"),
    ("Look", "ratenorm report runs/c runs/d -o report.html"),
)

RULES = (
    "Every run writes a folder with its configuration, metrics and record. A used folder is refused unless --resume or "
    "--overwrite is given. Every command takes options from a TOML file with --config FILE. Exit codes: 0 done, 1 "
    "failed, 2 wrong use, 130 stopped by Ctrl-C, 143 by SIGTERM."
)


class Command(Protocol):
    """What `main` runs."""

    def run(self) -> None:
        """Do the work; errors are those of `ratenorm.errors`."""


def manual() -> str:
    """What `ratenorm --help` prints, as wide as the terminal."""
    width = min(100, max(40, get_terminal_size().columns))
    lines = ["usage: ratenorm COMMAND [OPTIONS]", ""]
    lines += textwrap.wrap("Turn a neural network into a spiking one that is accurate within a few time-steps.", width)
    lines += ["", "commands:"]
    for name, (_, summary) in COMMANDS.items():
        lines += textwrap.wrap(summary, width, initial_indent=f"  {name:<13}", subsequent_indent=" " * 15)
    lines += ["", "examples:"]
    lines += [f"  {what:<17}{words}" for what, words in EXAMPLES]
    lines += ["", *textwrap.wrap(RULES, width), "", "ratenorm COMMAND --help lists the options of a command."]
    return "\n".join(lines)


def command_class(name: str) -> type[Command]:
    """The class of a command, loaded now."""
    module = importlib.import_module(f"ratenorm.cli.{name.replace('-', '_')}")
    found: type[Command] = getattr(module, COMMANDS[name][0])
    return found


def parsed(name: str, arguments: Sequence[str]) -> Command:
    """The command with its options read. Leaves by SystemExit with an explanation where they are wrong."""
    import tyro

    from ratenorm.cli.config_file import main_options

    kind = command_class(name)
    _shorten_help(kind)
    settings = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)  # --resume, not also --no-resume
    for word in arguments:
        if (flag := word.partition("=")[0]) in MOVED_FLAGS.get(name, {}):
            print(f"ratenorm {name}: {flag} is now {MOVED_FLAGS[name][flag]}.", file=sys.stderr)
            raise SystemExit(2)
    return tyro.cli(kind, prog=f"ratenorm {name}", args=main_options(name, kind, arguments), config=settings)


MOVED_FLAGS = {
    "train": {"--rest": "--bias-penalty", "--early": "--cut-rates-at", "--settle": "--refresh-batchnorm-at"},
}
METAVARS: dict[Any, str] = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


def _shorten_help(kind: Any) -> None:
    """Leave out `(default: None)` and `{None}|`: the text of an option says what happens without it."""
    import tyro

    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        bare = get_type_hints(kind)[field.name]
        if is_dataclass(bare):
            _shorten_help(bare)  # a group of options
        if field.default is not None and not isinstance(field.default, bool) and field.default != ():
            continue
        alternatives = [t for t in get_args(bare) if t is not type(None)]
        metavar = METAVARS.get(alternatives[0]) if field.default is None and len(alternatives) == 1 else None
        short = tyro.conf.arg(help_behavior_hint="", metavar=metavar)
        hints[field.name] = Annotated[hints[field.name], short]
    kind.__annotations__ = hints
