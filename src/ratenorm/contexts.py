"""What a caller has switched on around a call must not change its numbers: autocast, inference mode, gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def undisturbed() -> Iterator[None]:
    """Full precision, no gradients, and tensors that can be changed later, outside inference mode too."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.no_grad())
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def undisturbed_call(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, run in `undisturbed`."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with undisturbed():
            return function(*args, **kwargs)

    return call
