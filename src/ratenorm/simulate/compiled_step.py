"""The dense engine's step through `torch.compile`: on a GPU, few large kernels instead of many small ones.

The compiled step is the same Python as the plain one, so the two cannot drift apart; where there is no compiler the
plain one runs, and says so once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from ratenorm.errors import RatenormError

Step = Callable[..., Any]


def wanted(device: torch.device, asked: bool | None) -> bool:
    """Whether to compile: as asked; unasked, on a GPU, where the step is bound by the launching of kernels."""
    return device.type == "cuda" if asked is None else asked


def compiled_step(plain: Step, backend: str = "inductor") -> Step:
    """`plain` compiled at its first call for the shapes it then sees; `plain` itself where that fails.

    A step changes nothing before it runs, and it is compiled before it runs: falling back is safe.
    """
    made: Step = _compiled(plain, backend)
    failed = False

    def step(*args: Any) -> Any:
        nonlocal failed
        if failed:
            return plain(*args)
        try:
            return made(*args)
        except RatenormError:
            raise
        except Exception as error:
            if not _is_from_the_compiler(error):
                raise
            failed = True
            _say_once(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}")
            return plain(*args)

    return step


@cache
def _compiled(plain: Step, backend: str) -> Step:
    made: Step = torch.compile(plain, backend=backend, dynamic=False)
    return made


def _is_from_the_compiler(error: Exception) -> bool:
    module = type(error).__module__
    return module.startswith(("torch._dynamo", "torch._inductor", "torch._functorch", "triton"))


@cache
def _say_once(reason: str) -> None:
    warnings.warn(
        f"torch.compile does not work here ({reason}). The dense engine runs uncompiled: the same results, more "
        "slowly. Install a C++ compiler (CPU) or triton (GPU), or pass compiled=False to silence this.",
        RuntimeWarning,
        stacklevel=4,
    )
