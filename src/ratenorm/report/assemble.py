"""From paths to one HTML file: gather what can be read, say what cannot, write in one piece."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ratenorm import records as record_files
from ratenorm.errors import DataError, RatenormError, UsageError
from ratenorm.records import Record
from ratenorm.report import BuildResult

if TYPE_CHECKING:
    from ratenorm.report.sections import Training


def load_records(paths: Iterable[str | os.PathLike[str]]) -> tuple[list[Record], list[str]]:
    """Usable records in the order given, and one sentence for everything that had to be left out."""
    found: dict[Path, Path] = {}
    warnings: list[str] = []
    given = list(paths)
    for path in given:
        try:
            for file in record_files.find([path]):
                found.setdefault(file.resolve(), file)
        except RatenormError as problem:
            warnings.append(str(problem))
    loaded: list[Record] = []
    for file in found.values():
        try:
            record, problems = record_files.salvage(file)
        except RatenormError as problem:
            warnings.append(str(problem))
            continue
        loaded.append(record)
        warnings += problems
    if not loaded:
        reasons = " ".join(warnings) or "No path was given."
        raise DataError(f"There is no record to report on. {reasons}")
    return loaded, warnings


METRICS, LONGEST = "metrics.jsonl", 2**24


def trainings_in(paths: Iterable[str | os.PathLike[str]]) -> list[Training]:
    """The finished epochs of every run folder among the paths; lines that cannot be read are left out."""
    from ratenorm.report.sections import Training

    found: list[Training] = []
    for path in map(Path, paths):
        file = path / METRICS
        if not file.is_file() or file.stat().st_size > LONGEST:
            continue
        epochs: list[dict[str, Any]] = []
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                entry = json.loads(line)
                epochs.append({**entry, "stage": str(entry["stage"]), "epoch": int(entry["epoch"])})
        if epochs:
            found.append(Training(path.resolve().name, tuple(epochs)))
    return found


def assembled(
    content: Iterable[str | os.PathLike[str] | Mapping[str, Any]], out: str | os.PathLike[str]
) -> BuildResult:
    """See `ratenorm.report.build_report`. Records that are not files are written to a temporary folder first."""
    given = [content] if isinstance(content, Mapping | str | os.PathLike) else list(content)
    with TemporaryDirectory() as folder:
        paths: list[str | os.PathLike[str]] = []
        for number, one in enumerate(given):
            if not isinstance(one, Mapping | str | os.PathLike):
                raise UsageError(
                    f"Building a report: got a {type(one).__name__}. Give records, record files or run folders; an "
                    "evaluation becomes a record by rn.record(conversion, evaluation)."
                )
            if isinstance(one, Mapping):
                one = record_files.write(Path(folder) / f"{number}.json", one)
            paths.append(one)
        return _built(paths, Path(out))


def _built(paths: list[str | os.PathLike[str]], out: Path) -> BuildResult:
    if out.is_dir():
        raise UsageError(
            f"The report cannot be written to {out}: it is a folder. Give a file, for example report.html."
        )
    loaded, warnings = load_records(paths)
    from ratenorm.report.html import page  # loads matplotlib: only once there is something to draw

    text = page(loaded, warnings, trainings_in(paths)).encode("utf-8")
    temporary = out.with_name(f".{out.name}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(text)
        os.replace(temporary, out)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise UsageError(f"The report could not be written to {out}: {error.strerror or error}.") from error
    runs = sum(len(record["runs"]) for record in loaded)
    return BuildResult(out, len(text), len(loaded), runs, tuple(warnings))
