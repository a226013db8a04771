"""How many threads torch may use, here and now.

Torch's own threads stay awake for some 20 ms after every operation that used them, in case another one follows. Beside
the engine's threads they would take half of a processor each, so the engine lets torch work alone except where torch
does the work. In a forked child torch always works alone: its threads stay with the parent, and it would wait for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_forked: list[int] = []  # not empty in a process that was forked from one that had imported this
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forked.append(os.getpid()))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads in a block of code, in this thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if _forked else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
