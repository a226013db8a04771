"""Compile with numba, and keep the result where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Machine code without the GIL and without checks of bounds; cached on disk unless there is no place to write."""
    options: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
    try:
        made: F = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # raised at decoration where no cache directory can be written
        made = numba.njit(**options)(function)
    return made
