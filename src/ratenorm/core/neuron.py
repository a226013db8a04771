"""The integrate-and-fire neuron with soft reset (Eq. 3). This is the one definition of the neuron.

| paper          | here      | shape  |
|----------------|-----------|--------|
| v(t-1), v(t)   | potential | [B, …] |
| W s(t) + b     | current   | [B, …] |
| v_th           | threshold | [] or [C, 1, …] |
| s(t)           | spikes    | [B, …], 0 or 1 |

    m(t) = v(t-1) + W s(t) + b
    s(t) = U(m(t) - v_th)            U(0) = 1: fires on reaching the threshold
    v(t) = m(t) - v_th s(t)          soft reset: what exceeds the threshold is kept

Summed over t this is the conservation of charge, v(t) = v(0) + sum of currents - v_th * spikes so far, from which the
paper's Lemma 1 follows. v is not bounded from below: inhibition may drive it negative, and it stays there.

The signed neuron is a second, separate model. Nothing uses it unless a network asks for it by name.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Fired(NamedTuple):
    spikes: Tensor
    potential: Tensor


def integrate_and_fire(potential: Tensor, current: Tensor, threshold: Tensor | float) -> Fired:
    """One step of Eq. 3. Pure: nothing is changed in place."""
    charged = potential + current
    spikes = (charged >= threshold).to(charged.dtype)
    return Fired(spikes, charged - threshold * spikes)


def integrate_and_fire_(potential: Tensor, current: Tensor, threshold: Tensor | float) -> Tensor:
    """The same step, updating `potential` in place, for the engines: equal to `integrate_and_fire` bit for bit."""
    potential += current
    spikes = (potential >= threshold).to(potential.dtype)
    potential -= spikes * threshold
    return spikes


def signed_integrate_and_fire_(potential: Tensor, current: Tensor, threshold: Tensor | float, sent: Tensor) -> Tensor:
    """A step of the signed neuron, updating `potential` in place. It can take back spikes that it sent too early.

        s(t) = 1 where m(t) >= v_th;  -1 where m(t) <= -v_th and the sum of spikes so far is positive;  else 0

    Args:
        potential: v(t-1), changed to v(t).
        current: W s(t) + b.
        threshold: v_th.
        sent: The sum of each neuron's spikes before this step.

    Returns:
        s(t): -1, 0 or 1. The sum of a neuron's spikes never becomes negative.
    """
    potential += current
    spikes = (potential >= threshold).to(potential.dtype)
    spikes -= ((potential <= -threshold) & (sent > 0)).to(potential.dtype)
    potential -= spikes * threshold
    return spikes
