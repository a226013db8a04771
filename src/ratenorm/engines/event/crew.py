"""Threads that share the work on one group of images, layer by layer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from ratenorm.engines.event import board as boards
from ratenorm.engines.event import turns
from ratenorm.engines.event.arrays import Array, address_of
from ratenorm.engines.event.compiled import name_of

PATIENCE = 1 << 20  # looks at a flag, about a millisecond, before a thread gives way to others


_resting: dict[int, SimpleQueue[Crew]] = {}  # crews without work, by their number of helpers
if hasattr(os, "register_at_fork"):  # where processes can fork, threads stay behind with the parent
    os.register_at_fork(after_in_child=_resting.clear)


@contextmanager
def hired(helpers: int) -> Iterator[Crew]:
    """A crew for a while. To start a thread takes as long as a small layer, so crews rest in between."""
    others = _resting.setdefault(helpers, SimpleQueue())
    try:
        crew = others.get_nowait()
    except Empty:
        crew = Crew(helpers).__enter__()
    try:
        yield crew
    except BaseException:
        crew.__exit__()  # it may be in the middle of a job
        raise
    crew.rest()
    others.put(crew)


class Crew:
    """The calling thread and some helpers, which live as long as the `with` block. Without helpers it works alone."""

    def __init__(self, helpers: int = 0) -> None:
        self.size = 1 + helpers
        self._flags = boards.new_flags(helpers)
        self._awake = threading.Event()
        self._over = False
        self._threads = [threading.Thread(target=self._help, args=(part,), daemon=True) for part in range(1, self.size)]

    def __enter__(self) -> Crew:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over = True
        self.rest()
        for thread in self._threads:
            while thread.is_alive():
                self._awake.set()  # again and again: another one may lie down in between
                thread.join(0.01)

    def follow(self, script: Array, first: int = 0) -> tuple[int, int]:
        """Do the jobs on some boards together, from the first on.

        Returns the board that stopped and why, a reason of jobs.py; the number of boards and 0 where all are done.
        """
        address, last = address_of(script), len(script)
        if self._threads and bool((script[first:, boards.PARTS] > 1).any()):
            self._flags[turns.TURN] = self._flags[turns.COUNT]  # no rest any more, and no new turn yet
            self._awake.set()
        at, waiting = turns.follow(address, first, last, self._flags, PATIENCE)
        while waiting:
            self._awake.set()  # in case a helper lay down just when the job was announced
            time.sleep(0)
            waiting = not turns.finished(self._flags, PATIENCE)
            if not waiting and not script[at, boards.STOPPED]:
                at, waiting = turns.follow(address, at + 1, last, self._flags, PATIENCE)
        if at == last:
            return last, 0
        why, script[at, boards.STOPPED] = int(script[at, boards.STOPPED]), 0
        if why == boards.FAILED:
            name = name_of(int(script[at, boards.CODE]))
            raise RuntimeError(f"The event engine: {name} failed in compiled code; its message is above.")
        return at, why

    def rest(self) -> None:
        """Leave the processor to others until the next job."""
        if self._threads:
            self._awake.clear()
            self._flags[turns.TURN] = turns.REST

    def _help(self, part: int) -> None:
        while not self._over:
            self._awake.wait()
            if turns.help_out(self._flags, part, PATIENCE):
                self._awake.clear()  # nothing to do for long: sleep until the next job
