"""Sixteen lanes at once: the few vector instructions that the kernels are made of, as LLVM IR.

Left to itself the compiler does not see that a comparison of sixteen potentials is a word of sixteen spikes, or that a
row of weights is a handful of registers. Written as vectors of fixed width it does, on any processor: LLVM splits or
joins them to what the machine has. Offsets are in elements; arrays are one-dimensional and contiguous, and nothing is
checked: the callers keep every offset inside.
"""

# mypy: disable-error-code="attr-defined"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import config

LANES = 16
WIDE = 2 * LANES  # of a vector of 16-bit numbers: all channels of a block behind a convolution
F32, I32, I16, I8 = ir.FloatType(), ir.IntType(32), ir.IntType(16), ir.IntType(8)
FLOATS = ir.VectorType(F32, LANES)
EIGHT = ir.VectorType(I32, 8)


def has_feature(name: str) -> bool:
    """Whether the machine that the code is made for has it; unknown where numba was told of another machine."""
    return not (config.CPU_NAME or config.CPU_FEATURES) and bool(get_host_cpu_features().get(name, False))


def address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, vector: Any) -> Any:
    """A pointer to the vector that begins at an index of an array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index], inbounds=True), vector.as_pointer())


def load(builder: Any, pointer: Any) -> Any:
    """A vector of 32-bit lanes that need not begin on a boundary."""
    return builder.load(pointer, align=4)


def splat(builder: Any, vector: Any, scalar: Any) -> Any:
    """A vector with one value in all lanes."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(I32, 0))
    mask = ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)
