"""`python -m paper`: the paper's tables and figures, from training to the results page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ratenorm.cli.main import run
from ratenorm.errors import RatenormError


@dataclass(frozen=True)
class Reproduce:
    """Reproduce the paper: train what is missing, resume what was cut, evaluate all methods, write records, tables
    and figures.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """table1, table2, headline, fig2, fig3, fig4, fig6, fig7, or networks (see --list) or parts of their names: mnist,
    vgg16, cifar10; default: all
    """
    list: bool = False
    """show what there is, what it needs and how far it is, and leave"""
    network: str | None = None
    """network of fig4, fig6, fig7 and headline (default: vgg16-cifar10, as in the paper)"""
    seeds: tuple[int, ...] | None = None
    """seeds to run (default: those of each network)"""
    work: Path = Path("runs/reproduce")
    """where trainings live; give the same folder again to go on"""
    results: Path = Path("paper/results")
    """where records, figures and README.md are written"""
    root: Path | None = None
    """where the data sets lie"""
    short: bool = False
    """prove the presets by a short run on a subset"""
    whole: tuple[str, ...] | None = None
    """runs that go on to all test images, such as "RNL + RIL"; the others stop behind the first 1,000. nothing: all
    stop there (default: all go on)
    """
    anew: bool = False
    """train every network here, also those that the zoo has"""

    def run(self) -> None:
        from paper.scale import SHORT, Scale
        from paper.targets import Folders, listing, plan, run_plan, runs_named
        from ratenorm import report
        from ratenorm.io import zoo
        from ratenorm.train.interrupt import Interrupted

        wanted = plan(self.names, self.network, self.seeds)
        root = None if self.root is None else str(self.root)
        known = None if self.anew else zoo.folder()
        at = Folders(self.work, self.results, root, SHORT if self.short else Scale(), known, runs_named(self.whole))
        if self.list:
            print("\n".join(listing(self.names, wanted, at)))
            return
        try:
            run_plan(wanted, at, report.save_figure, print)
        except Interrupted as stop:
            raise Interrupted(stop.exit_code - 128, _in_our_words(stop)) from stop
        except RatenormError as error:
            raise type(error)(_in_our_words(error)) from error


# Folders are resumed by themselves here: there is no --resume and no --overwrite.
_OUR_WORDS = {
    "Continue with --resume.": "Give the same command again to go on.",
    "then continue with --resume.": "then give the same command again.",
    "Start anew with --overwrite.": "Remove that folder to start it anew.",
    "or start anew in another folder.": "or remove that folder to start it anew.",
}


def _in_our_words(error: Exception) -> str:
    text = str(error)
    for theirs, ours in _OUR_WORDS.items():
        text = text.replace(theirs, ours)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the reproduction; returns the exit code."""
    return run(lambda: tyro.cli(Reproduce, prog="python -m paper", args=arguments))


if __name__ == "__main__":
    sys.exit(main())
