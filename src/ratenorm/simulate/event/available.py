"""Whether the event engine can run here. Kept apart from the engine, so that asking does not import its core."""

from __future__ import annotations

import importlib
import warnings
from functools import cache

import torch
from torch import Tensor

from ratenorm.graph.net import SpikingNet
from ratenorm.graph.ops import Fire

CURE = "Install ratenorm again where there is a C++20 compiler (GCC 11, Clang 14 or later), or take a ready wheel"


def load() -> None:
    """Import the engine, and its compiled core with it."""
    importlib.import_module("ratenorm.simulate.event.simulation")


@cache
def missing() -> str | None:
    """Why the core cannot be loaded, or None. Found out once."""
    try:
        load()
    except ImportError as error:
        said = (str(error).splitlines() or [""])[0]
        return f"compiled core is not installed ({type(error).__name__}: {said})"
    return None


def instruction_sets() -> list[str]:
    """Those that the core was compiled for and this machine has, the best first."""
    from ratenorm.simulate.event import _core

    return _core.instruction_sets()


def unfit(net: SpikingNet, x: Tensor) -> str | None:
    """Why this network or these images are not for the event engine, or None."""
    if net.device.type != "cpu":
        return f"the network is on {net.device}, and the event engine runs on the CPU"
    for node in net.populations:
        assert isinstance(node.op, Fire)
        if node.op.signed:
            return f"population {node.name!r} has signed spikes, which the event engine does not compute"
    kinds = net.dtypes | {x.dtype}
    if kinds != {torch.float32}:
        names = ", ".join(sorted(str(k).removeprefix("torch.") for k in kinds))
        return f"the network and the images are of {names}, and the event engine computes in float32"
    return None


@cache
def warn_once(reason: str) -> None:
    """Say that the dense engine is taken instead, and how to get the event engine."""
    warnings.warn(
        f"The event engine is not available: its {reason}. The dense engine runs instead: the same results, "
        f"more slowly. {CURE}; engine='dense' silences this.",
        RuntimeWarning,
        stacklevel=4,
    )
