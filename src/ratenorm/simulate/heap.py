"""Memory that is no longer used goes back to the system, so that a long evaluation does not seem to grow.

Objects that refer to one another in a circle wait for a full collection, which comes rarely in a process with many
objects; and glibc keeps what was freed, scattered.
"""

from __future__ import annotations

import ctypes
import gc
from functools import cache
from typing import Any


@cache
def _trim() -> Any:
    """glibc's malloc_trim; None with another C library."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None


def give_back() -> bool:
    """Hand unused memory back; whether the C library can be asked to. Takes about a tenth of a second."""
    gc.collect()
    trim = _trim()
    if trim is not None:
        trim(0)
    return trim is not None
