"""A training seen from the terminal, through the files of its folder only.

Nothing is written, locked or signalled: the view may be opened, closed and opened again while the training
runs.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

from ratenorm.errors import UsageError
from ratenorm.io.files import is_sealed, opened_line, regular
from ratenorm.io.text import printable
from ratenorm.records import FILE_NAME
from ratenorm.report.words import duration, percent

METRICS = "metrics.jsonl"
TAIL = 512 * 1024  # bytes read from the end: thousands of lines, whatever the length of the training
PLOT_ENDINGS = (".png", ".svg", ".pdf", ".html")
PLOTS_SHOWN = 4
_BLOCKS = "▁▂▃▄▅▆▇█"
_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True)
class Progress:
    """What the metrics of a run say: complete lines, oldest first, and how many could not be read."""

    lines: tuple[Mapping[str, Any], ...]
    unreadable: int


def watch_run(
    run_folder: str | os.PathLike[str],
    once: bool = False,
    interval: float = 2.0,
    stream: TextIO | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """See `ratenorm.report.watch`."""
    folder = Path(run_folder)
    if not folder.is_dir():
        raise UsageError(f"Watching a run: {folder} is not a folder. Give the folder the training writes to.")
    if not interval > 0:
        raise UsageError(f"Watching a run: the interval is {interval} s; it must be above 0.")
    out = stream if stream is not None else sys.stdout
    last = None
    try:
        while True:
            text = view(folder, now=time.time())
            if out.isatty():
                out.write(("" if once else _CLEAR) + text + "\n")
            elif text != last:
                out.write(text + "\n")
            out.flush()
            last = text
            if once or (folder / FILE_NAME).is_file():
                return
            sleep(interval)
    except (KeyboardInterrupt, BrokenPipeError):
        return  # closing the view is not an error


def view(folder: Path, now: float) -> str:
    """The whole view as text."""
    progress = read_progress(folder / METRICS)
    rows = [str(folder)]
    if progress.lines:
        rows += _figures(progress.lines, _age(folder / METRICS, now))
    else:
        rows.append(f"No figures yet: {METRICS} is not there or empty. A training writes it from its first step on.")
    if progress.unreadable:
        rows.append(f"{progress.unreadable} damaged line(s) of {METRICS} left out.")
    plots = _last_plots(folder)
    rows += ["last plots"] + [f"  {path}" for path in plots] if plots else []
    if (folder / FILE_NAME).is_file():
        rows.append(f"Finished: {folder / FILE_NAME}. See it with `ratenorm report {folder} -o report.html`.")
    return printable("\n".join(rows))


def read_progress(path: Path) -> Progress:
    """The complete lines at the end of a metrics file; a last line still being written is not an error."""
    try:
        with regular(path) as (file, size):
            file.seek(max(0, size - TAIL))
            chunk = file.read()
    except OSError:
        return Progress((), 0)
    pieces = chunk.split(b"\n")
    if size > TAIL:
        pieces = pieces[1:]  # the first piece starts in the middle of a line
    lines: list[Mapping[str, Any]] = []
    unreadable = 0
    for number, piece in enumerate(pieces):
        if not piece.strip():
            continue
        try:
            lines.append(opened_line(piece, is_sealed(chunk)))
        except ValueError:
            unreadable += number < len(pieces) - 1
    return Progress(tuple(lines), unreadable)


def sparkline(values: Sequence[float], width: int = 48) -> str:
    """A curve in one row of text: means of equal shares of the values, lowest to highest block."""
    if not values:
        return ""
    width = min(width, len(values))
    cuts = [round(i * len(values) / width) for i in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, span = min(means), (max(means) - min(means)) or 1.0
    return "".join(_BLOCKS[round((mean - low) / span * (len(_BLOCKS) - 1))] for mean in means)


def _figures(lines: Sequence[Mapping[str, Any]], age: str) -> list[str]:
    where = [f"{key} {value:,.0f}" for key in ("stage", "epoch", "step") if (value := _last(lines, key)) is not None]
    rows = [", ".join(where) + (f"   (updated {age} ago)" if age else "")]
    stage = _last(lines, "stage")
    current = [line for line in lines if line.get("stage") == stage] if stage is not None else lines
    for key, show in (("loss", "{:.4g}".format), ("accuracy", lambda value: percent(value, 2))):
        curve = _series(current, key)
        if curve:
            rows.append(f"{key:<10}{show(curve[-1]):>10}  {sparkline(curve)}")
    rate, seconds, left = (_last(lines, key) for key in ("lr", "seconds", "eta_seconds"))
    rows += [f"{'lr':<10}{rate:>10.3g}"] if rate is not None else []
    rows += [f"{'elapsed':<10}{duration(max(0.0, seconds)):>10}"] if seconds is not None else []
    rows += [f"{'left':<10}{duration(max(0.0, left)):>10}"] if left is not None else []
    return rows


def _series(lines: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    values = (line.get(key) for line in lines)
    return [
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    ]


def _last(lines: Sequence[Mapping[str, Any]], key: str) -> float | None:
    values = _series(lines, key)
    return values[-1] if values else None


def _age(path: Path, now: float) -> str:
    try:
        return duration(max(0, round(now - path.stat().st_mtime)))
    except OSError:
        return ""


def _last_plots(folder: Path) -> list[Path]:
    """The newest pictures of the run, newest first; files may come and go while we look."""
    dated = []
    for path in folder.rglob("*"):
        try:
            if path.suffix in PLOT_ENDINGS and path.is_file():
                dated.append((path.stat().st_mtime, str(path), path))
        except OSError:
            continue
    return [path for _, _, path in sorted(dated, reverse=True)[:PLOTS_SHOWN]]
