"""Ctrl-C and SIGTERM at a safe moment: the loop finishes its step, writes a checkpoint, and stops with the
right code.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from ratenorm.errors import RatenormError


class Interrupted(RatenormError):
    """The run was asked to stop; its last state is saved. Exit code 128 + signal: 130 for Ctrl-C, 143 for SIGTERM."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class Interrupts:
    """Within a `with` statement SIGINT and SIGTERM are noted in `received` and do nothing else; a second one is
    obeyed.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python takes no handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            self._restore()
            signal.raise_signal(number)
        self.received = number

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
