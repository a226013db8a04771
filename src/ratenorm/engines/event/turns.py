"""How threads take turns at the jobs of a chunk.

A helper that had to ask Python for its arguments would wait for the interpreter's lock, and one that sleeps takes as
long to wake as a small layer takes to run. So a helper runs one compiled function all along: it waits, awake, until the
turn changes, does its part of that turn's job, and says so. And Python, whose data the kernels have driven from the
caches, would take as long between two layers as a small one: so the jobs of all layers are written down in advance.
"""
# mypy: disable-error-code="call-arg, return-value, assignment, arg-type, var-annotated"

from __future__ import annotations

from numpy import uintp

from ratenorm.engines.event.arrays import Array
from ratenorm.engines.event.board import BYTES, FAILED, LINE, acquire, call, heading, release, stop, stopped
from ratenorm.engines.event.compiled import compiled
from ratenorm.engines.event.jobs import DONE

TURN, JOB, COUNT = 0, 1, 2  # flags: the turn, or REST; the address of its board; how many turns there were
REST = -1  # a turn that is no job: go back to Python and wait there


@compiled
def do(address: int, part: int) -> None:
    """One part of the job on the board at an address, if there are that many."""
    code, parts = heading(address)
    if part < parts and call(code, address, part) != DONE:
        stop(address, FAILED)


@compiled
def finished(flags: Array, patience: int) -> bool:
    """Wait, awake, until all helpers have done this turn; False where it takes too long."""
    turn = flags[COUNT]
    for helper in range(1, len(flags) // LINE):
        tries = 0
        while acquire(flags, uintp(helper * LINE)) != turn:
            tries += 1
            if tries == patience:
                return False
    return True


@compiled
def follow(boards: int, first: int, last: int, flags: Array, patience: int) -> tuple[int, bool]:
    """Do the jobs from one board to another, one after the other, with all helpers where a job has several parts.

    Returns the board of the job that stopped, and True where it only waits for a helper; `last` where all is done.
    """
    for at in range(first, last):
        board = boards + at * BYTES
        if heading(board)[1] > 1:
            flags[COUNT] += 1
            flags[JOB] = board
            release(flags, uintp(TURN), flags[COUNT])
            do(board, 0)
            if not finished(flags, patience):
                return at, True
        else:
            do(board, 0)
        if stopped(board) != 0:
            return at, False
    return last, False


@compiled
def help_out(flags: Array, part: int, patience: int) -> bool:
    """Do one part of every job as it comes, until there was none for long; False where it is time to rest."""
    done = acquire(flags, uintp(part * LINE))
    tries = 0
    while tries < patience:
        now = acquire(flags, uintp(TURN))
        if now == REST:
            return False
        if now == done:
            tries += 1
            continue
        do(flags[JOB], part)
        done, tries = now, 0
        release(flags, uintp(part * LINE), done)
    return True
