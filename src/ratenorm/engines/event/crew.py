"""Threads that share the work on one group of images, layer by layer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from ratenorm.engines.event import board as boards
from ratenorm.engines.event import jobs
from ratenorm.engines.event.compiled import code_of

Job = Callable[[int, int], int]  # of jobs.py

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
        self._board = boards.new_board()
        self._address = boards.where(self._board)[0]
        self._flags = boards.new_flags(helpers)
        self._turn = 0
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

    def run(self, job: Job, parts: int, numbers: Sequence[int], arrays: Sequence[int]) -> None:
        """Do a job together; back when all parts are done."""
        parts = min(parts, self.size)
        boards.write(self._board, code_of(job), parts, numbers, arrays)
        if parts == 1:
            jobs.take_part(self._address, self._flags, 0, 0, PATIENCE)
            self._check(job)
            return
        self._turn += 1
        if not self._awake.is_set():
            self._awake.set()
        done = jobs.take_part(self._address, self._flags, 0, self._turn, PATIENCE)
        while not done:
            self._awake.set()  # in case a helper lay down just when the job was announced
            time.sleep(0)
            done = jobs.finished(self._flags, self._turn, PATIENCE)
        self._check(job)

    def _check(self, job: Job) -> None:
        if self._board[boards.FAILED]:
            self._board[boards.FAILED] = 0
            raise RuntimeError(f"The event engine: {job.__name__} failed in compiled code; its message is above.")

    def rest(self) -> None:
        """Leave the processor to others until the next job."""
        if self._threads:
            self._awake.clear()
            self._flags[0] = jobs.REST

    def _help(self, part: int) -> None:
        while not self._over:
            self._awake.wait()
            if jobs.take_part(self._address, self._flags, part, 0, PATIENCE):
                self._awake.clear()  # nothing to do for long: sleep until the next job
