"""Ctrl-C while the command line is still loading: torch takes seconds, and a traceback through it helps nobody.

The command line calls `guard` before it loads anything. A signal that arrives before `loaded` is called ends the
process with one line and the right exit code. No run has begun, so nothing needs tidying. Importing the library
touches no handler.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

_WORDS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
_before: dict[int, object] = {}


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, f"ratenorm: stopped by {_WORDS[signal.Signals(number)]} before anything began.\n".encode())
    os._exit(128 + number)


def guard() -> None:
    """Leave quietly from now on. What somebody ignores (nohup) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        return  # elsewhere Python takes no handlers
    untouched = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    for number, usual in untouched.items():
        if signal.getsignal(number) == usual:
            _before[number] = signal.signal(number, _leave)


def loaded() -> None:
    """From now on signals are exceptions again, as a run in progress needs them."""
    for number in list(_before):
        signal.signal(number, _before.pop(number))  # type: ignore[arg-type]
