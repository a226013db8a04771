"""What inference costs: the paper's power model, and operations priced by the energy of 45 nm logic.

The paper (section 3.4) counts spikes: P = spikes / 1 ms * alpha. Its 0.265 is a ratio of the spikes fired up to the
step
where a target accuracy is reached. The field counts synaptic operations: every spike is added once for each synapse it
travels over (0.9 pJ), an analog operation is a multiply-accumulate (4.6 pJ). Both constants are of one source
(Horowitz, ISSCC 2014: 32-bit float add, and multiply + add); never mix them with another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ACCUMULATE_PJ = 0.9
MULTIPLY_ACCUMULATE_PJ = 4.6
STEP_SECONDS = 1e-3


def power(spikes_in_step: float, alpha: float = 1.0, step_seconds: float = STEP_SECONDS) -> float:
    """P = spikes / step * alpha, in watts where `alpha` is the energy of a spike in joules."""
    return spikes_in_step / step_seconds * alpha


def steps_to(accuracy: Sequence[float], target: float) -> int | None:
    """The first step (from 1) from which the accuracy is and stays at least `target`; None if it never does.

    Staying counts: a curve that touches the target by luck and falls back has not arrived.
    """
    last_below = max((t for t, a in enumerate(accuracy, start=1) if a < target), default=0)
    return last_below + 1 if last_below < len(accuracy) else None


def spike_energy(spikes: Sequence[float], steps: int, alpha: float = 1.0) -> float:
    """The paper's energy up to and including step `steps`: the power summed over time."""
    return sum(power(s, alpha) * STEP_SECONDS for s in spikes[:steps])


@dataclass(frozen=True)
class Cost:
    """Operations of one inference and their energy in picojoules."""

    macs: float  # multiply-accumulates: all of an ANN, the analog first layer of an SNN
    synaptic_ops: float = 0.0  # accumulates caused by spikes
    membrane_updates: float = 0.0  # one a neuron and step, bias included

    @property
    def picojoules(self) -> float:
        return self.macs * MULTIPLY_ACCUMULATE_PJ + (self.synaptic_ops + self.membrane_updates) * ACCUMULATE_PJ
