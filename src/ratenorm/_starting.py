"""Ctrl-C while the command line is still loading: torch takes seconds, and a traceback through it helps nobody.

The package imports this first. Where Python was started as `ratenorm` or `python -m ratenorm`, a signal that arrives
before `loaded` is called ends the process with one line and the right exit code: no run has begun, so nothing needs
tidying, and no exception is raised inside somebody's half-done import. In any other program nothing is touched.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

_WORDS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
_before: dict[int, object] = {}


def _is_command() -> bool:
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    if program != "-m":  # what Python puts there until it has found the module
        return os.path.splitext(program)[0] == "ratenorm"
    words = sys.orig_argv
    return "-m" in words[:-1] and words[words.index("-m") + 1].split(".")[0] == "ratenorm"


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, f"ratenorm: stopped by {_WORDS[signal.Signals(number)]} before anything began.\n".encode())
    os._exit(128 + number)


def guard() -> None:
    """Leave quietly from now on. What somebody ignores (nohup) stays ignored."""
    untouched = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    for number, usual in untouched.items():
        if signal.getsignal(number) == usual:
            _before[number] = signal.signal(number, _leave)


def loaded() -> None:
    """From now on signals are exceptions again, as a run in progress needs them."""
    for number in list(_before):
        signal.signal(number, _before.pop(number))  # type: ignore[arg-type]


if _is_command() and threading.current_thread() is threading.main_thread():  # elsewhere Python takes no handlers
    guard()
