"""How many threads torch may use, here and now.

Torch's own threads stay awake for some 20 ms after every operation that used them, in case another one follows. Beside
the engine's threads they would take half of a processor each, so the engine lets torch work alone except where torch
does the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads in a block of code, in this thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
