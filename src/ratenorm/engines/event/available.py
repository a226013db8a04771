"""Whether the event engine can run here. Kept apart from the engine, so that asking does not import numba."""

from __future__ import annotations

import importlib
import warnings
from functools import cache

import torch
from torch import Tensor

from ratenorm.graph.net import SpikingNet


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


def unfit(net: SpikingNet, x: Tensor) -> str | None:
    """Why this network or these images are not for the event engine, or None."""
    if net.device.type != "cpu":
        return f"the network is on {net.device}, and the event engine runs on the CPU"
    kinds = {t.dtype for node in net.nodes for t in node.op.tensors().values()} | {x.dtype}
    if kinds != {torch.float32}:
        names = ", ".join(sorted(str(k).removeprefix("torch.") for k in kinds))
        return f"the network and the images are of {names}, and the event engine computes in float32"
    return None


@cache
def warn_once(reason: str) -> None:
    """Say that the dense engine is taken instead, and how to get the event engine."""
    warnings.warn(
        f"The event engine is not available: {reason}. The dense engine runs instead: the same results, "
        f"more slowly. `pip install numba` may help; engine='dense' silences this.",
        RuntimeWarning,
        stacklevel=4,
    )
