"""One fault against the tests that run its line, in a process of its own and a copy of the package."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutating.faults import Fault

# An editable installation finds the package by a finder of its own; a copy of the package must come first.
CUSTOMIZE = """import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__name__.startswith("ScikitBuild")]
"""


BROKEN = 70


@dataclass(frozen=True)
class Outcome:
    result: str  # killed, survived, endless
    by: str  # the first test that failed
    seconds: float


class Copy:
    """The package as links, of which one file at a time is another."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root, self.place, self.source = root, place, root / "src" / "ratenorm"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "sitecustomize.py").write_text(CUSTOMIZE)
        for file in self.source.rglob("*"):
            if file.is_file() and file.suffix != ".pyc":
                self._link(file.relative_to(self.source), file)
        core = importlib.import_module("ratenorm.simulate.event._core")
        assert core.__file__ is not None
        self._link(Path("simulate/event") / Path(core.__file__).name, Path(core.__file__))
        if not (place / "zoo").exists() and (root / "zoo").is_dir():
            self._link(Path("zoo_files"), root / "zoo")

    def _link(self, name: Path, file: Path) -> None:
        link = self.place / "ratenorm" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(file)

    @contextlib.contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        link = self.place / "ratenorm" / fault.file
        text = (self.source / fault.file).read_text(encoding="utf-8")
        link.unlink()
        link.write_text(fault.applied(text), encoding="utf-8")
        self._forget(link)
        try:
            yield
        finally:
            link.unlink()
            link.symlink_to(self.source / fault.file)
            self._forget(link)

    def _forget(self, link: Path) -> None:
        for compiled in (link.parent / "__pycache__").glob(f"{link.stem}.*"):
            compiled.unlink()


def tried(copied: Copy, fault: Fault, tests: list[str], seconds: float) -> Outcome:
    """Run the tests on the fault until one fails. The process is a fork of this one, which has loaded torch already."""
    log = copied.place / "log.txt"
    begun = time.monotonic()
    with copied.with_fault(fault):
        child = os.fork()
        if child == 0:
            _run(copied, tests, log)
        ended = _wait(child, begun + seconds)
    took = time.monotonic() - begun
    if ended is None:
        return Outcome("endless", "", took)
    if ended not in (0, 1, 2):  # neither passed, nor failed, nor did a module of the tests fail to load
        raise SystemExit(f"pytest ended with {ended}: {log.read_text(errors='replace')[-2000:]}")
    return Outcome("survived" if ended == 0 else "killed", _failed(log), took)


def _run(copied: Copy, tests: list[str], log: Path) -> None:
    code = BROKEN
    try:
        os.setsid()
        with open(log, "w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        exec(CUSTOMIZE, {})
        for name in [n for n in sys.modules if n == "ratenorm" or n.startswith("ratenorm.")]:
            del sys.modules[name]
        sys.path.insert(0, str(copied.place))
        os.environ["PYTHONPATH"] = str(copied.place)
        os.chdir(copied.root)
        import pytest

        words = ["-x", "-q", "-p", "no:cacheprovider", "--tb=line", "-n", "0"]
        words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is loaded already
        code = int(pytest.main([*words, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, until: float) -> int | None:
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _failed(log: Path) -> str:
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].split(" - ")[0]
    return ""
