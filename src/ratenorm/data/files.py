"""Reading and checking the files of a known set. Nothing here writes, and nothing here unpickles."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ratenorm.data.sets import FileSpec, SetSpec, data_root
from ratenorm.errors import DataError

CHECKSUMS = "SHA256SUMS"
"""Written beside the files by the downloader; the format of `sha256sum -c`."""

FileState = Literal["complete", "missing", "damaged"]


@dataclass(frozen=True)
class FileStatus:
    """One file of a set. `detail` says, where it is damaged, what was expected and what was found."""

    name: str
    state: FileState
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.state}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class SetStatus:
    """The files of a set, one by one."""

    name: str
    folder: Path
    files: tuple[FileStatus, ...]

    @property
    def complete(self) -> bool:
        return all(file.state == "complete" for file in self.files)

    def __str__(self) -> str:
        head = f"{self.name} in {self.folder}: {'complete' if self.complete else 'not complete'}"
        return "\n".join([head, *(f"  {file}" for file in self.files)])


def inspect(file: FileSpec, folder: Path) -> tuple[bytearray, FileStatus]:
    """The content of one file and what there is to say about it (no content where it is not complete)."""
    path = folder / file.name
    try:
        size = path.stat().st_size
        # By size first: a file that is too long is never read, and a truncated one costs nothing.
        problem = _wrong_size(file, size)
        content = bytearray(0 if problem else size)
        if not problem:
            with path.open("rb") as stream:
                problem = _wrong_size(file, stream.readinto(content))
    except (FileNotFoundError, NotADirectoryError):
        return bytearray(), FileStatus(file.name, "missing")
    except OSError as error:
        return bytearray(), FileStatus(file.name, "damaged", f"cannot be read: {error.strerror or error}")
    expected = file.sha256 or recorded_checksums(folder).get(file.name)
    problem = problem or wrong_checksum(content, expected)
    if problem:
        return bytearray(), FileStatus(file.name, "damaged", problem)
    return content, FileStatus(file.name, "complete")


def read_checked(spec: SetSpec, file: FileSpec, folder: Path) -> bytearray:
    """The content of one file, or a DataError that names it and says what was expected, found, and helps."""
    content, status = inspect(file, folder)
    if status.state == "complete":
        return content
    detail = f": {status.detail}" if status.detail else ""
    raise DataError(f"Reading {spec.name}: {folder / file.name} is {status.state}{detail}. {spec.fix}")


def _wrong_size(file: FileSpec, size: int) -> str:
    if file.size is not None and size != file.size:
        return f"{file.size} bytes were expected, found {size}"
    if size > file.limit:
        return f"at most {file.limit} bytes were expected, found {size}"
    return ""


def wrong_checksum(content: bytes | bytearray, expected: str | None) -> str:
    """What is wrong with the content, empty if nothing is or no checksum is known."""
    if expected is None or (found := hashlib.sha256(content).hexdigest()) == expected:
        return ""
    return f"sha256 {expected} was expected, found {found}"


def recorded_checksums(folder: Path) -> dict[str, str]:
    """File name -> sha256 from the SHA256SUMS of a downloaded set; empty for a folder laid out by hand."""
    path = folder / CHECKSUMS
    try:
        text = path.read_bytes()[:65536].decode("ascii")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Reading {path}: not a list of checksums ({error}). Fix: delete this file.") from error
    pairs = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    if any(len(pair) != 2 or len(pair[0]) != 64 for pair in pairs):
        raise DataError(f"Reading {path}: every line must be a sha256 and a file name. Fix: delete this file.")
    return {name.strip(): checksum for checksum, name in pairs}


def check_files(spec: SetSpec, root: str | os.PathLike[str] | None = None) -> SetStatus:
    """The state of every file of `spec` under the data root."""
    folder = data_root(root) / spec.folder
    return SetStatus(spec.name, folder, tuple(inspect(file, folder)[1] for file in spec.files))
