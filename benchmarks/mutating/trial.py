"""One fault against the tests that run its line, in a process of its own and a copy of the package."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mutating.faults import Fault

# An editable installation finds the package by a finder of its own; a copy of the package must come first.
CUSTOMIZE = """import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__name__.startswith("ScikitBuild")]
"""


BROKEN = 70
ENDLESS = 300.0  # seconds that a test may take after the time for the fault is over; alone none takes a tenth of it
FIRST = 25  # the number of tests that are collected and run before the others: they kill most faults


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
        core = importlib.util.find_spec("ratenorm.simulate.event._core")
        assert core is not None
        assert core.origin is not None
        # Not loaded here: a second load in the same process, in a fork too, leaves the core without its types.
        assert core.name not in sys.modules
        self._link(Path("simulate/event") / Path(core.origin).name, Path(core.origin))
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
    """Run the tests on the fault until one fails or the seconds are over.

    The process is a fork of this one, which has loaded torch already.
    """
    log = copied.place / "log.txt"
    begun = time.monotonic()
    with copied.with_fault(fault):
        gc.freeze()
        child = os.fork()
        if child == 0:
            _run(copied, tests, log, begun + seconds)
        ended = _wait(child, begun + seconds + ENDLESS)
    took = time.monotonic() - begun
    if ended is None:
        return Outcome("endless", "", took)
    unloaded = ended == 4 and bool(_failed(log))  # a module of the tests fails to load: all named tests are unknown
    if ended not in (0, 1, 2) and not unloaded:
        raise SystemExit(f"pytest ended with {ended}: {log.read_text(errors='replace')[-2000:]}")
    return Outcome("survived" if ended == 0 else "killed", _failed(log), took)


class _Deadline:
    """A plugin of pytest: after the deadline no test is begun."""

    def __init__(self, until: float) -> None:
        self.until = until

    def pytest_runtest_logstart(self) -> None:
        if self.over:
            raise pytest.exit.Exception("The time for this fault is over.", returncode=0)

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until


def _run(copied: Copy, tests: list[str], log: Path, until: float) -> None:
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
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading them takes longer than most tests
        words = ["-x", "-q", "--tb=line", "--assert=plain", "-p", "_hypothesis_pytestplugin"]
        words += [word for name in ("cacheprovider", "unraisableexception") for word in ("-p", f"no:{name}")]
        deadline, code = _Deadline(until), 0
        for some in (tests[:FIRST], tests[FIRST:]):
            if some and code == 0 and not deadline.over:
                code = int(pytest.main([*words, *some], plugins=[deadline]))
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
