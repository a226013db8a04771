"""Energy of one inference, spiking and analog, from one source of constants.

All constants: Horowitz, ISSCC 2014, 45 nm, 0.9 V. Constants of different sources are never mixed.

    ANN, 32-bit float     E = MACs · 4.6 pJ                     (multiply 3.7 + add 0.9)
    ANN, b-bit integer    E = MACs · (0.2 pJ · (b/8)² + 0.1 pJ) (multiplier scaled, accumulator of 32 bits)
    SNN after t steps     E = input MACs · 4.6 pJ + (synaptic operations + membrane updates up to t) · 0.9 pJ
    the same in integers  E = input MACs · 0.3 pJ + (synaptic operations + membrane updates up to t) · 0.1 pJ

The multiplier is taken proportional to bits × bits: the source gives 0.2 pJ at 8 and 3.1 pJ at 32 bits, and
the rule predicts 3.2. The rival of an SNN that answers after T steps resolves rates in T + 1 levels:
ceil(log2(T + 1)) bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FLOAT_MAC = 4.6  # pJ
FLOAT_ADD = 0.9  # pJ
INT8_MULTIPLY = 0.2  # pJ
INT32_ADD = 0.1  # pJ

ASSUMPTION = (
    "All constants from one source (Horowitz, ISSCC 2014, 45 nm, 0.9 V): 4.6 pJ for a 32-bit float "
    "multiply-accumulate, 0.9 pJ for a float accumulate. The quantised ANN is an assumption on top: the "
    "cost of an integer multiply is taken proportional to bits × bits from 0.2 pJ at 8 bits (which gives "
    "3.2 pJ at 32 bits; the source says 3.1), with a 32-bit accumulator at 0.1 pJ. Float and integer "
    "figures are different arithmetic: compare an integer ANN with the integer SNN (accumulates 0.1 pJ, "
    "8-bit input multiplies). Memory traffic is counted for none of them."
)


@dataclass(frozen=True)
class SpikingEnergy:
    """Energy of one inference in picojoules, by where it goes."""

    input_layer: float
    synapses: float
    membranes: float

    @property
    def total(self) -> float:
        return self.input_layer + self.synapses + self.membranes


def spiking(run: Mapping[str, Any], step: int) -> SpikingEnergy:
    """Energy of a run that answers at `step`, in 32-bit float arithmetic."""
    return SpikingEnergy(
        input_layer=run["input_macs"] * FLOAT_MAC,
        synapses=sum(run["synaptic_ops"][:step]) * FLOAT_ADD,
        membranes=run["membrane_updates"] * step * FLOAT_ADD,
    )


def spiking_integer(run: Mapping[str, Any], step: int) -> float:
    """The same inference in integers: what a fixed-point chip would pay, in picojoules."""
    accumulates = sum(run["synaptic_ops"][:step]) + run["membrane_updates"] * step
    return float(run["input_macs"] * integer_mac(8) + accumulates * INT32_ADD)


def analog(macs: float) -> float:
    """Energy of one inference of the ANN in 32-bit float, in picojoules."""
    return macs * FLOAT_MAC


def analog_quantised(macs: float, bits: int) -> float:
    """Energy of one inference of the ANN in `bits`-bit integers, in picojoules."""
    return macs * integer_mac(bits)


def integer_mac(bits: int) -> float:
    """Picojoules of one integer multiply-accumulate under the bits × bits assumption."""
    return INT8_MULTIPLY * (bits / 8) ** 2 + INT32_ADD


def equivalent_bits(steps: int) -> int:
    """ceil(log2(steps + 1)): the bits that hold the rates 0/T .. T/T."""
    return steps.bit_length()
