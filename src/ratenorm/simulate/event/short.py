"""Weights as 16-bit whole numbers, where they are such: lane by lane a multiple of a power of two, with room to add."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ratenorm.simulate.event.routes import Route
from ratenorm.simulate.event.tables import Array

LARGEST = np.iinfo(np.int16).max
TOGETHER = (16, 8, 4)  # spikes added before a sum is widened: the more, the less often
TINY = 2.0**-100  # a unit below this could leave float32 when multiplied
DIGITS = 24  # of a float32


@dataclass(frozen=True)
class Short:
    """A section's weights in 16 bits."""

    weights: Array  # [block, …], the rows of all channels for each digit, lanes of both halves in turn
    units: Array  # [lanes], what 1 stands for; the share of a pooled spike is in it
    most: int  # spikes whose weights can be added in 16 bits


def as_short(blocked: Tensor, route: Route) -> Short | None:
    """Weights [block, C_in, tap, lane] in 16 bits, or None where they do not fit."""
    weights = blocked.float().numpy()
    units = units_of(weights)  # [block, lane]
    whole = weights / units[:, None, None, :]  # exact: a power of two
    most = _room(np.abs(whole), 1 if route.windows is None else route.windows.shape[1])
    if most is None or units.min() < TINY:
        return None
    rows = np.concatenate([whole.astype(np.int16) << digit for digit in range(route.digits)], axis=1)
    in_turn = rows.reshape(*rows.shape[:-1], 2, -1).swapaxes(-1, -2)  # see vector_short.py
    return Short(in_turn.reshape(len(rows), -1), units.reshape(-1) * np.float32(route.share), most)


def _room(sizes: Array, members: int) -> int | None:
    """How many entries of a pixel's list can be added in 16 bits, whichever they are.

    They belong to as many channels at most, and a channel counts at most once for each member of a pooled window.
    """
    everything = sizes.sum((1, 2), dtype=np.float64).max(initial=0.0) * members
    if sizes.max(initial=0.0) > LARGEST or everything > np.iinfo(np.int32).max:
        return None
    count = min(TOGETHER[0], sizes.shape[1])
    largest = np.partition(sizes, sizes.shape[1] - count, axis=1)[:, -count:]
    falling = np.sort(largest, axis=1)[:, ::-1]
    sums = falling.cumsum(1, dtype=np.float64).max((0, 2, 3)) * members  # of the largest one, two, …
    return next((most for most in TOGETHER if sums[min(most, count) - 1] <= LARGEST), None)


def units_of(weights: Array) -> Array:
    """For each lane the largest power of two that all its weights are multiples of; 1 where all are zero."""
    mantissa, exponent = np.frexp(weights)
    digits = np.abs(mantissa * np.float32(2**DIGITS)).astype(np.int32)
    _, lowest = np.frexp((digits & -digits).astype(np.float32))  # of a power of two: its exponent and one
    zero = digits == 0
    least = np.where(zero, np.iinfo(np.int32).max, exponent + lowest - 1 - DIGITS).min((1, 2))
    silent = zero.all((1, 2))
    return np.where(silent, 1.0, np.exp2(np.where(silent, 0, least).astype(np.float64))).astype(np.float32)
