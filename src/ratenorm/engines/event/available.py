"""Whether the event engine can run here. Kept apart from the engine, so that asking does not import numba."""

from __future__ import annotations

import importlib
import warnings
from functools import cache

import torch
from torch import Tensor

from ratenorm.graph.net import SpikingNet
from ratenorm.graph.ops import Fire

_NO_PLACE = (
    "there is no folder to keep its compiled code in (the package's __pycache__, the user's cache folder and "
    "NUMBA_CACHE_DIR are read-only or not set), and every process would wait for the compiler"
)


def load() -> None:
    """Import the engine, and numba with it."""
    importlib.import_module("ratenorm.engines.event.simulation")


@cache
def missing() -> str | None:
    """Why the kernels cannot be loaded, or None. Found out once, and said once."""
    try:
        load()
    except Exception as error:  # numba raises what its parts raise: a missing module, a wrong NumPy, no memory
        said = (str(error).splitlines() or [""])[0]
        return f"numba cannot be used here ({type(error).__name__}: {said})"
    return None


@cache
def uncached() -> str | None:
    """Why compiled code cannot be kept, so that every process would wait for the compiler, or None."""
    from ratenorm.engines.event.compiled import not_kept

    return _NO_PLACE if not_kept else None


def unfit(net: SpikingNet, x: Tensor) -> str | None:
    """Why this network or these images are not for the event engine, or None."""
    if net.device.type != "cpu":
        return f"the network is on {net.device}, and the event engine runs on the CPU"
    for node in net.populations:
        assert isinstance(node.op, Fire)
        if node.op.step_bias is not None or node.op.signed:
            what = "signed spikes" if node.op.signed else "a bias for each step"
            return f"population {node.name!r} has {what}, which the event engine does not compute"
    kinds = net.dtypes | {x.dtype}
    if kinds != {torch.float32}:
        names = ", ".join(sorted(str(k).removeprefix("torch.") for k in kinds))
        return f"the network and the images are of {names}, and the event engine computes in float32"
    return None


@cache
def warn_once(reason: str) -> None:
    """Say that the dense engine is taken instead, and how to get the event engine."""
    warnings.warn(
        f"The event engine is not available: {reason}. The dense engine runs instead: the same results, "
        f"more slowly. {_mend(reason)}; engine='dense' silences this.",
        RuntimeWarning,
        stacklevel=4,
    )


def _mend(reason: str) -> str:
    if reason == _NO_PLACE:
        return "Set NUMBA_CACHE_DIR to a folder that can be written, or ask for engine='event' to compile each time"
    return "`pip install numba` may help"
