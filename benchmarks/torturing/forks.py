"""Children that start at once: torch is imported here, a child is a fork of this process, and nothing survives it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from tqdm import tqdm

from ratenorm.cli.starting import guard


def one_thread() -> None:
    """Threads do not survive a fork, so there must be none; and a lock shared with a child would die with it."""
    torch.set_num_threads(1)
    tqdm.monitor_interval = 0
    tqdm.set_lock(threading.RLock())


@dataclass(frozen=True)
class End:
    """How a child ended: its exit code, 128 + number for a signal that killed it, and what it had left running."""

    code: int
    orphans: int


@contextlib.contextmanager
def child(work: Callable[[], int], quiet: bool = True) -> Iterator[int]:
    """A fork of this process that does `work`; gives its number. Whoever opens it must end it or wait for it; where
    that fails, by an error or because this process dies, the child goes too."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    number = os.fork()
    if number == 0:
        code = 1
        try:
            os.setsid()  # a process group of its own: whatever it leaves behind can be counted
            _die_with(parent)
            # A shell that starts us in the background has SIGINT ignored, and a fork would inherit that.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            guard()  # as `ratenorm` itself does, from its first line on
            if quiet:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                os.dup2(null, 2)
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    try:
        yield number
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(number, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(number, 0)
        raise


def _die_with(parent: int) -> None:
    """Linux kills this process when its parent ends, however that comes about."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # too late
            os._exit(1)


def wait(number: int, seconds: float = 120.0) -> End:
    """Wait for a child; one that hangs is killed and counted as 124, as `timeout` does."""
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(number, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return End(128 - code if code < 0 else code, _left(number))
        if time.monotonic() > deadline:
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
            return End(124, _left(number))
        time.sleep(0.002)


def end_after(number: int, seconds: float, how: signal.Signals) -> End:
    """Send a child a signal after a while, unless it ends by itself before."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return wait(number)
        time.sleep(0.001)
    os.kill(number, how)
    return wait(number)


def _left(group: int) -> int:
    """1 if a process of the group still runs."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return 0
    return 1
