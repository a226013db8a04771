"""Run folders: every experiment writes one, with its resolved configuration, metrics, checkpoint and record.

A folder belongs to one run. It is refused if it was used before (unless resumed or overwritten), if another process is
at work in it, or if it cannot be written; all before any work starts.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from ratenorm.errors import RatenormError, UsageError
from ratenorm.io.files import (
    is_sealed,
    is_stray,
    open_own,
    read_small,
    sealed_line,
    sweep,
    to_json,
    write_atomic,
)

Mode = Literal["new", "resume", "overwrite"]
CONFIG, METRICS, LOCK = "config.json", "metrics.jsonl", ".lock"
CONFIG_LIMIT = 2**20  # bytes
LINE_LIMIT = 2**16  # bytes


class RunFolder:
    """An open run folder; use it in a `with` statement. Holds a lock as long as it is open."""

    def __init__(self, path: str | os.PathLike[str], mode: Mode = "new") -> None:
        self.path = Path(path)
        self.mode = mode
        self.sinks: list[Callable[[dict[str, Any]], None]] = []  # each is given every line of metrics
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"Opening the run folder {self.path}: it is a file. Give another folder.")
        used = holds_a_run(self.path)
        if used and mode == "new":
            raise UsageError(
                f"Opening the run folder {self.path}: it was used before. Continue it with --resume, replace "
                "it with --overwrite, or give another folder."
            )
        if mode == "resume" and not used:
            raise UsageError(f"Resuming {self.path}: there is no run in it. Start one without --resume.")
        if used and mode == "overwrite" and not (self.path / CONFIG).exists():
            raise UsageError(
                f"Overwriting {self.path}: it holds files but no {CONFIG}, so it is no run folder of ratenorm "
                "and is left alone. Give another folder."
            )
        self._lock = self._acquire()
        sweep(self.path)
        if mode == "overwrite":
            self._empty()

    def _acquire(self) -> int:
        while True:
            lock = self._try_lock()
            # the run before may have removed the file between our opening and our locking it: then we hold a lock
            # that nobody else can see, and ask again
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(self.path / LOCK)):
                    os.truncate(lock, 0)
                    os.write(lock, str(os.getpid()).encode())
                    return lock
            os.close(lock)

    def _try_lock(self) -> int:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open_own(self.path / LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UsageError(
                    f"Opening the run folder {self.path}: its {LOCK} is a link, and what it leads to would be "
                    "overwritten. Remove it, if nobody you know put it there, or give another folder."
                ) from error
            raise UsageError(
                f"Opening the run folder {self.path}: {error.strerror or error}. Give a folder that can be written."
            ) from error
        try:
            _flock(lock)
        except OSError as error:
            other = os.read(lock, 64).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise UsageError(
                f"Opening the run folder {self.path}: process {other} is at work in it. Wait for it, stop it, "
                "or give another folder."
            ) from error
        return lock

    def _empty(self) -> None:
        for entry in self.path.iterdir():
            if entry.name == LOCK:
                continue
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, RatenormError) and self.mode == "new":
            self._forget_unstarted()
        self.close()

    def _forget_unstarted(self) -> None:
        """A run that was refused before it wrote anything leaves no folder that counts as used."""
        with contextlib.suppress(OSError):
            if {f.name for f in self.path.iterdir()} <= {CONFIG, LOCK}:
                (self.path / CONFIG).unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock >= 0:
            (self.path / LOCK).unlink(missing_ok=True)  # while it is still ours
            os.close(self._lock)
            self._lock = -1

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def configure(self, config: dict[str, Any]) -> None:
        """Write the resolved configuration; a resumed run must have the same one."""
        path = self.path / CONFIG
        if self.mode == "resume" and path.exists():
            try:
                old = dict(json.loads(read_small(path, CONFIG_LIMIT).decode("utf-8")))
            except (ValueError, TypeError, RecursionError, OSError) as error:
                raise UsageError(
                    f"Resuming {self.path}: its {CONFIG} is damaged ({error}). Start anew with --overwrite."
                ) from error
            # an option that the run did not know when it began, and that is None, changes nothing
            was, now = _given(old), _given(json.loads(to_json(config)))
            if changed := sorted(k for k in {*was, *now} if was.get(k) != now.get(k)):
                raise UsageError(
                    f"Resuming {self.path}: the configuration differs in {', '.join(changed)}. A resumed run goes "
                    "on as it began: use the same options, or start anew in another folder."
                )
            return
        write_atomic(path, (json.dumps(config, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())

    def log(self, entry: dict[str, Any]) -> None:
        """Append one line of metrics, with a checksum, unless the run began before lines had one."""
        path = self.path / METRICS
        try:
            with open(open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "ab+") as file:
                file.seek(0)
                first = file.readline(LINE_LIMIT)
                line = sealed_line(entry) if not first or is_sealed(first) else to_json(entry)
                file.write(f"{line}\n".encode())
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _linked(path) from error
            raise RatenormError(
                f"Writing {path}: {error.strerror or error}. Make room, then continue with --resume."
            ) from error
        for sink in self.sinks:
            sink(entry)

    @property
    def logged(self) -> int:
        """How many bytes of metrics there are; a checkpoint remembers it so that a resumed run repeats no line."""
        path = self.path / METRICS
        return path.stat().st_size if path.exists() else 0

    def rewind(self, logged: int) -> None:
        """Forget the metrics behind a checkpoint."""
        path = self.path / METRICS
        if self.logged <= logged:
            return
        try:
            descriptor = open_own(path, os.O_RDWR)
        except OSError as error:
            raise _linked(path) from error
        try:
            os.ftruncate(descriptor, logged)
        finally:
            os.close(descriptor)


def _flock(lock: int) -> None:
    """Take the lock or raise OSError. Windows has no such lock: there two runs in one folder are not told apart."""
    with contextlib.suppress(ImportError):
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FollowerFolder(RunFolder):
    """The same folder seen by a process that is not the writer: it reads (checkpoints, networks) and writes nothing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.mode = "new"
        self._lock = -1

    def configure(self, config: dict[str, Any]) -> None:
        """The writer does it."""

    def log(self, entry: dict[str, Any]) -> None:
        """The writer does it."""

    def rewind(self, logged: int) -> None:
        """The writer does it."""


def _linked(path: Path) -> RatenormError:
    return RatenormError(
        f"Writing {path}: it is a link, and what it leads to would be changed. Put the file itself there, then "
        "continue with --resume."
    )


def _given(config: Any) -> Any:
    """A configuration without the options that are None, at any depth."""
    if isinstance(config, dict):
        return {k: _given(v) for k, v in config.items() if v is not None}
    return [_given(v) for v in config] if isinstance(config, list) else config


def holds_a_run(path: Path) -> bool:
    """Whether anything but a lock and the strays of a killed process lies in a folder."""
    return path.is_dir() and any(f.name != LOCK and not is_stray(f) for f in path.iterdir())


def go_on(path: str | os.PathLike[str]) -> RunFolder:
    """A folder for experiments that are simply given again: what is there goes on, what is not begins."""
    return RunFolder(path, "resume" if holds_a_run(Path(path)) else "new")


def open_shared(path: str | os.PathLike[str], mode: Mode, writer: bool, wait: Callable[[], None]) -> RunFolder:
    """A run folder for several processes: the writer opens it, the others wait for that and follow.

    When torchrun has started the processes anew because one of them died, the run goes on whatever `mode` says: it was
    meant for the first start.
    """
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0:
        mode = "resume" if holds_a_run(Path(path)) else "new"
    folder = RunFolder(path, mode) if writer else None
    wait()
    return FollowerFolder(path) if folder is None else folder
