"""The report: what people look at. It reads records and nothing else.

`build` makes one self-contained HTML file, `save_plots` and `save_tables` the same figures for a paper,
`watch` shows a training that is still running. matplotlib is loaded by the first call that draws, not by the
import.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from ratenorm.records import Record

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class BuildResult:
    """What `build` made: the file, its size, how much it shows, and a sentence for all it could not."""

    path: Path
    size: int
    records: int
    runs: int
    warnings: tuple[str, ...]


def build_report(content: Iterable[PathLike | Mapping[str, Any]], out: PathLike) -> BuildResult:
    """Write one self-contained HTML page of records; it opens offline.

    The same records give the same bytes.

    Args:
        content: Record files, run folders, or records themselves (what `record` returned).
        out: The file to write.

    Returns:
        Where the page is, its size, and a sentence for everything that could not be shown.

    Raises:
        DataError: If nothing at all can be shown.
        UsageError: If the page cannot be written.
    """
    from ratenorm.report.assemble import assembled

    return assembled(content, out)


build = build_report


def load(paths: Iterable[PathLike]) -> tuple[list[Record], list[str]]:
    """The records in `paths` as far as they can be used, and one sentence for everything that cannot."""
    from ratenorm.report.assemble import load_records

    return load_records(paths)


def save_plots(records: Sequence[Record], folder: PathLike, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write every plot of the report as files ("png", "svg", "pdf") and return their paths."""
    from ratenorm.report.plots import save_plots as save

    return save(records, folder, formats)


def save_tables(records: Sequence[Record], folder: PathLike, formats: Sequence[str] = ("csv", "tex")) -> list[Path]:
    """Write every table of the report as files ("csv", "tex") and return their paths."""
    from ratenorm.report.tables import save_tables as save

    return save(records, folder, formats)


def save_figure(path: PathLike) -> list[Path]:
    """Draw a figure of the paper from its JSON (results/figures/) beside it, as SVG; returns the pictures' paths."""
    from ratenorm.report.plots.paper import save_figure as save

    return save(path)


def watch(run_folder: PathLike, once: bool = False, interval: float = 2.0, stream: TextIO | None = None) -> None:
    """Show a running training in the terminal from its folder's files; never writes to the folder.

    Returns after one view (`once`), when the run has left its record, or on Ctrl-C.
    """
    from ratenorm.report.terminal import watch_run

    watch_run(run_folder, once=once, interval=interval, stream=stream)


__all__ = ["BuildResult", "build", "build_report", "load", "save_figure", "save_plots", "save_tables", "watch"]
