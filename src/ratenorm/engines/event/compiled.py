"""Compile with numba, and keep the result where that is possible."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])
Job = Callable[[int, int], int]  # of jobs.py

not_kept: list[str] = []  # functions whose machine code has no place on disk: each process compiles them anew
_names: dict[int, str] = {}  # by where the machine code begins


def compiled(function: F) -> F:
    """Machine code without the GIL and without checks of bounds; cached on disk unless there is no place to write."""
    options: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
    try:
        made: F = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # raised at decoration where no cache directory can be written
        not_kept.append(function.__qualname__)
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
    cache = made._cache  # type: ignore[attr-defined]
    cache._cache_file._source_stamp = _stamp()
    load = _outliving(cache.load_overload, Path(cache._cache_file._index_path))
    cache.load_overload = _forgiving(load, f"reading from {cache.cache_path}")
    cache.save_overload = _forgiving(cache.save_overload, f"writing to {cache.cache_path}")
    return made


@functools.cache
def code_of(job: Callable[..., int], arguments: int = 2) -> int:
    """Where the machine code of a compiled function of some whole numbers begins, for callers that are compiled too:
    what is called by its address is not translated again into each of them."""
    signature = (numba.int64,) * arguments
    job.compile(signature)  # type: ignore[attr-defined]
    made = job.overloads[signature]  # type: ignore[attr-defined]
    address = int(made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name))
    assert address, f"numba has no code for {job.__name__}"
    _names[address] = job.__name__
    return address


def name_of(code: int) -> str:
    """The function whose machine code begins there."""
    return _names[code]


@functools.cache
def _stamp() -> tuple[tuple[str, float, int], ...]:
    """Of all files of the engine: kept code has grown together from several, and numba looks at one."""
    found = ((path.name, path.stat()) for path in sorted(Path(__file__).parent.glob("*.py")))
    return tuple((name, status.st_mtime, status.st_size) for name, status in found)


def _outliving(load: Callable[..., Any], index: Path) -> Callable[..., Any]:
    """Code kept by another version can name what this one no longer has; numba would stumble over it before it looked
    at the stamp, and could not replace it either."""

    def attempt(*args: Any) -> Any:
        try:
            return load(*args)
        except (AttributeError, ImportError):
            index.unlink(missing_ok=True)
            return None

    return attempt


def _forgiving(method: Callable[..., Any], doing: str) -> Callable[..., Any]:
    """A cache that fills the disk, vanishes or is damaged while we run costs a compilation, never the run."""

    def attempt(*args: Any) -> Any:
        try:
            return method(*args)
        except Exception as error:  # what a damaged pickle raises can be anything
            warnings.warn(
                f"The cache of compiled code failed while {doing} ({type(error).__name__}: {error}). The event engine "
                "works and is compiled anew next time. Mend or empty that folder, or set NUMBA_CACHE_DIR to another.",
                RuntimeWarning,
                stacklevel=2,
            )
            return None

    return attempt
