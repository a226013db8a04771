"""Records: what an experiment leaves behind, one JSON file a run (docs/records.md is the contract).

Nothing here imports torch, so that tables, plots and the report work on a machine that has none. Reading is
strict: a record that does not keep the contract is refused with its file and key. The report alone may ask
for what can still be used (`salvage`), because a reader who has nine good runs and one damaged one wants to
see the nine.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ratenorm.errors import DataError, FileFormatError, UsageError
from ratenorm.io.files import regular, to_json, write_atomic
from ratenorm.records import schema
from ratenorm.records.checks import Invalid, name_of
from ratenorm.records.seal import opened, sealed

FORMAT = "ratenorm-record"
VERSION = 2  # since 2 with a checksum (seal.py)
OLDEST = 1  # that is still read
FILE_NAME = "record.json"
SIZE_LIMIT = 64 * 2**20  # bytes; a 17-layer network over 2,048 steps and 8 examples stays below a tenth of this
SIGNIFICANT_DIGITS = 7

Record = dict[str, Any]


def write(path: str | os.PathLike[str], record: Mapping[str, Any]) -> Path:
    """Write a record so that the file is, at every moment, either the old one or the new one in full.

    It is written in the newest version, with a checksum, whatever version it was read from.
    """
    path = Path(path)
    try:
        _check_header(record, path)
        schema.check_record(record)
        rounded = _rounded({**record, "version": VERSION}, "")
    except Invalid as problem:
        raise FileFormatError(f"The record was not written to {path}: {problem}.") from None
    try:
        content = (to_json(sealed(rounded)) + "\n").encode("utf-8")
    except UnicodeEncodeError as error:
        raise FileFormatError(f"The record was not written to {path}: a text of it is not Unicode: {error}.") from None
    return write_atomic(path, content)


def read(path: str | os.PathLike[str]) -> Record:
    """Read one record and hold it to the contract; `FileFormatError` names the file and the key otherwise."""
    path = Path(path)
    record = _opened(path)
    try:
        schema.check_record(record)
    except Invalid as problem:
        raise FileFormatError(
            f"{path} is not a usable record: {problem}. Write it again by repeating the experiment."
        ) from None
    return record


def salvage(path: str | os.PathLike[str]) -> tuple[Record, list[str]]:
    """What can still be used of a record, and one sentence for every part that cannot.

    Raises `FileFormatError` where nothing can: no JSON, a foreign or newer file, a wrong checksum (any figure may be
    the changed one), no data set or network named.
    """
    path = Path(path)
    record = _opened(path)
    try:
        schema.check_foundation(record)
    except Invalid as problem:
        raise FileFormatError(f"{path} is not a usable record: {problem}.") from None
    kept, problems = schema.keep_sound_parts(record, fallback_title=path.parent.name or path.stem)
    return kept, [f"{path}: {problem}; this part was left out." for problem in problems]


def find(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Record files named by files or run folders: in the order given, folders sorted, each file once."""
    found: dict[Path, Path] = {}
    for given in map(Path, paths):
        if given.is_dir():
            direct = given / FILE_NAME
            files = [direct] if direct.is_file() else sorted(given.rglob(FILE_NAME))
            if not files:
                raise DataError(
                    f"{given} holds no {FILE_NAME}, neither directly nor in a folder below. "
                    "Give the folder of a finished run, for example one that `ratenorm demo` wrote."
                )
        elif given.is_file():
            files = [given]
        else:
            raise UsageError(f"{given} is neither a file nor a folder. Give record files or run folders.")
        for file in files:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _opened(path: Path) -> Record:
    """The content of a file of any version that is read, as the newest version has it."""
    record = _parse(path)
    _check_header(record, path)
    return {**opened(record, path), "version": VERSION}


def _parse(path: Path) -> Record:
    try:
        with regular(path) as (file, size):
            if size > SIZE_LIMIT:
                raise FileFormatError(
                    f"{path} has {size:,} bytes; a record has at most {SIZE_LIMIT:,}. It is not a record of ratenorm."
                )
            text = file.read(size).decode("utf-8")
        record = json.loads(text, **_STRICT)
        json.dumps(record, ensure_ascii=False).encode("utf-8")  # refuses half a surrogate pair
    except OSError as error:
        raise UsageError(f"The record {path} could not be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{path} is damaged or not JSON: {error}. Write it again by repeating the experiment."
        ) from None
    if not isinstance(record, dict):
        raise FileFormatError(f"{path} is not a record: it holds a {name_of(record)}, not an object.")
    return record


def _check_header(record: Mapping[str, Any], path: Path) -> None:
    if record.get("format") != FORMAT:
        raise FileFormatError(
            f'{path} is not a record of ratenorm: its "format" is {record.get("format")!r}, not "{FORMAT}".'
        )
    version = record.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise FileFormatError(f'{path}: "version" is {version!r}; a record carries a whole number.')
    if OLDEST <= version <= VERSION:
        return
    versions = record.get("versions")
    writer = versions.get("ratenorm") if isinstance(versions, dict) else None
    by = f" by ratenorm {writer}" if isinstance(writer, str) else ""
    if version < VERSION:
        fix = f"This ratenorm reads versions {OLDEST} to {VERSION}: repeat the experiment to write it again."
        raise FileFormatError(f"{path} was written{by} in the older record version {version}. {fix}")
    fix = f"This ratenorm knows up to version {VERSION}: update ratenorm."
    raise FileFormatError(f"{path} was written{by} in the newer record version {version}. {fix}")


def _rounded(value: Any, where: str) -> Any:
    """The value with floats cut to seven digits: enough for every figure, and stable under re-reading."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise Invalid(where, f"has the key {key!r}, which is a {name_of(key)}, not a text")
        return {key: _rounded(item, f"{where}.{key}" if where else key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Invalid(where, f"is {value}; a missing or undefined figure is written as null (None)")
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    if value is None or isinstance(value, str | bool | int):
        return value
    raise Invalid(where, f"is a {name_of(value)}, which JSON does not hold; use plain Python values")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not allowed; a missing figure is null")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large for a number")
    return value


def _bounded(text: str) -> int:
    value = int(text)
    if abs(value) >= 2**63:
        raise ValueError(f"{text[:30]} is too large for a whole number")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for key, value in pairs:
        if key in keys:
            raise ValueError(f"the key {key!r} appears twice in one object")
        keys[key] = value
    return keys


_STRICT: dict[str, Any] = {
    "parse_constant": _refuse_constant,
    "parse_float": _finite,
    "parse_int": _bounded,
    "object_pairs_hook": _unique_keys,
}

__all__ = ["FILE_NAME", "FORMAT", "VERSION", "Record", "find", "read", "salvage", "write"]
