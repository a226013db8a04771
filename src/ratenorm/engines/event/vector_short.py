"""Rows of 16-bit weights added, as vectors: half the bytes of float32, and twice as many lanes an instruction.

The weights of a converted network are whole multiples of a power of two, lane by lane (see convert/grid.py). As whole
numbers they leave room to add several before 16 bits overflow; then the sum is widened and goes to the currents, exact.
"""
# An intrinsic's arguments are numba types, and its code is not Python's:
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ratenorm.engines.event.lanes import FLOATS, I16, I32, LANES, address, load

WIDE = 2 * LANES  # lanes of a vector of 16-bit numbers: all channels of a block
SHORTS = ir.VectorType(I16, WIDE)


@contextmanager
def _while_less(builder: Any, counter: Any, end: Any) -> Iterator[None]:
    """Repeat while the number at `counter` is less than `end`."""
    test, body, after = (builder.append_basic_block(name) for name in ("test", "body", "after"))
    builder.branch(test)
    builder.position_at_end(test)
    builder.cbranch(builder.icmp_unsigned("<", builder.load(counter), end), body, after)
    builder.position_at_end(body)
    yield
    builder.branch(test)
    builder.position_at_end(after)


def _stencil(runs: int, columns: int) -> Any:
    """`runs` runs of `columns` pixels, a part of the 3x3 that a channel's weights are."""
    places = [(r, k) for r in range(runs) for k in range(columns)]

    @intrinsic
    def many_short(typingctx, total, at, stride, short, first, shift, inputs, units, unit0, entries, begin, end, most):
        """Add the weights of all spikes of a pixel, `most` of them in 16 bits before they are widened.

        The low 16 bits of an entry are a channel and, from bit `shift` on, a digit. Behind the rows of weights of all
        `inputs` channels lie those for digit 1, twice as large, and so on.
        """
        index = types.uintp
        signature = types.void(
            total, index, index, short, index, index, index, units, index, entries, index, index, index
        )  # fmt: skip

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            whole = args[1].type

            def number(value: int) -> Any:
                return ir.Constant(whole, value)

            def vector(k: int, place: Any, kind: Any) -> Any:
                return address(context, builder, sig.args[k], args[k], place, kind)

            units = [load(builder, vector(7, builder.add(args[8], number(k * LANES)), FLOATS)) for k in range(2)]
            multiply_add = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(FLOATS, [FLOATS, FLOATS, FLOATS]), "llvm.fmuladd.v16f32"
            )
            sums = [cgutils.alloca_once(builder, SHORTS) for _ in places]
            at = cgutils.alloca_once_value(builder, args[10])
            with _while_less(builder, at, args[11]):
                begin = builder.load(at)
                far = builder.add(begin, args[12])
                stop = builder.select(builder.icmp_unsigned("<", far, args[11]), far, args[11])
                for place in sums:
                    builder.store(ir.Constant(SHORTS, [0] * WIDE), place)
                with cgutils.for_range(builder, builder.sub(stop, begin), intp=whole) as loop:
                    entry = builder.load(vector(9, builder.add(begin, loop.index), I32), align=4)
                    low = builder.zext(builder.and_(entry, ir.Constant(I32, 0xFFFF)), whole)
                    digit = builder.lshr(low, args[5])
                    channel = builder.sub(low, builder.shl(digit, args[5]))
                    row = builder.add(channel, builder.mul(digit, args[6]))
                    source = vector(3, builder.add(args[4], builder.mul(row, number(9 * WIDE))), SHORTS)
                    for place, (r, k) in zip(sums, places, strict=True):
                        weight = builder.load(builder.gep(source, [ir.Constant(I32, 3 * r + k)]), align=2)
                        builder.store(builder.add(builder.load(place), weight), place)
                for place, (r, k) in zip(sums, places, strict=True):
                    found = builder.load(place)
                    start = builder.add(builder.add(args[1], builder.mul(args[2], number(r))), number(k * WIDE))
                    for half in range(2):
                        lanes = [ir.Constant(I32, half * LANES + j) for j in range(LANES)]
                        mask = ir.Constant(ir.VectorType(I32, LANES), lanes)
                        part = builder.shuffle_vector(found, ir.Constant(SHORTS, ir.Undefined), mask)
                        value = builder.sitofp(builder.sext(part, ir.VectorType(I32, LANES)), FLOATS)
                        into = vector(0, builder.add(start, number(half * LANES)), FLOATS)
                        added = builder.call(multiply_add, [value, units[half], load(builder, into)])
                        builder.store(added, into, align=4)
                builder.store(stop, at)
            return context.get_dummy_value()

        return signature, generate

    return many_short


short_3x3, short_3x2, short_2x3, short_2x2 = _stencil(3, 3), _stencil(3, 2), _stencil(2, 3), _stencil(2, 2)
