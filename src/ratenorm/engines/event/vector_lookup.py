"""Eq. 3 for the sixteen neurons of a pixel, whose currents are looked up; see lookup.py."""
# An intrinsic's arguments are numba types, and its code is not Python's:
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ratenorm.engines.event.lanes import FLOATS, I8, I16, I32, LANES, address, load

ROW = ir.VectorType(I16, LANES)
WHOLES = ir.VectorType(I32, LANES)
ONES = ir.VectorType(ir.IntType(1), LANES)
BYTES = 256


def _fire_lookup(skipping: bool) -> Any:
    @intrinsic
    def fire_lookup(
        typingctx,
        potential,
        counts,
        at,
        base,
        base_at,
        threshold,
        threshold_at,
        units,
        table,
        plane,
        first,
        line,
        size,
        spikes,
        word,
        stride,
        steps,
        skip,
        scale,
    ):
        """`steps` steps for the neurons of one pixel, their state in registers throughout.

        The window begins at plane[first]; `line` from one of its rows to the next, `size` from one step's picture to
        the next. Spikes of step s go to spikes[word + s * stride]; those of a skip connection lie there in `skip`.
        """
        i = types.uintp
        signature = types.void(
            potential, counts, i, base, i, threshold, i, units, table, plane, i, i, i, spikes, i, i, i, skip, scale
        )

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            index = args[2].type

            def number(value: int) -> Any:
                return ir.Constant(index, value)

            def floats(k: int, place: Any) -> Any:
                return address(context, builder, sig.args[k], args[k], place, FLOATS)

            def bits_of(k: int, place: Any) -> Any:
                return builder.bitcast(address(context, builder, sig.args[k], args[k], place, I16), I16.as_pointer())

            where_v, where_n = floats(0, args[2]), floats(1, args[2])
            still, theta = load(builder, floats(3, args[4])), load(builder, floats(5, args[6]))
            unit = load(builder, floats(7, number(0)))
            brought = load(builder, floats(18, number(0))) if skipping else None
            rows = builder.bitcast(address(context, builder, sig.args[8], args[8], number(0), I16), ROW.as_pointer())
            zero, one = ir.Constant(FLOATS, [0.0] * LANES), ir.Constant(FLOATS, [1.0] * LANES)
            v = cgutils.alloca_once_value(builder, load(builder, where_v))  # promoted to registers
            n = cgutils.alloca_once_value(builder, load(builder, where_n))

            def brings(tap: int, half: int, byte: Any) -> Any:
                at = builder.add(builder.zext(byte, index), number((2 * tap + half) * BYTES))
                return builder.load(builder.gep(rows, [at], inbounds=True), align=2 * LANES)

            def current(step: Any) -> Any:
                """The sum over nine words; sixteen spikes fit 16 bits, the sum of all does not."""
                start = builder.add(args[10], builder.mul(step, args[12]))
                total = ir.Constant(WHOLES, [0] * LANES)
                for tap in range(9):
                    there = builder.add(start, builder.mul(args[11], number(tap // 3)))
                    place = builder.add(there, number(tap % 3))
                    both = builder.bitcast(bits_of(9, place), I8.as_pointer())
                    found = [brings(tap, k, builder.load(builder.gep(both, [ir.Constant(I32, k)]))) for k in range(2)]
                    total = builder.add(total, builder.sext(builder.add(*found), WHOLES))
                return builder.fmul(builder.sitofp(total, FLOATS), unit)

            with cgutils.for_range(builder, args[16], intp=index) as loop:
                here = builder.add(args[14], builder.mul(loop.index, args[15]))
                inflow = current(loop.index)
                if skipping:
                    came = builder.bitcast(builder.load(bits_of(17, here), align=2), ONES)
                    inflow = builder.fadd(inflow, builder.select(came, brought, zero))
                charged = builder.fadd(builder.load(v), builder.fadd(inflow, still))
                fired = builder.fcmp_ordered(">=", charged, theta)
                builder.store(builder.fsub(charged, builder.select(fired, theta, zero)), v)
                builder.store(builder.fadd(builder.load(n), builder.select(fired, one, zero)), n)
                builder.store(builder.bitcast(fired, I16), bits_of(13, here), align=2)
            builder.store(builder.load(v), where_v, align=4)
            builder.store(builder.load(n), where_n, align=4)
            return context.get_dummy_value()

        return signature, generate

    return fire_lookup


fire_lookup, fire_lookup_skip = _fire_lookup(skipping=False), _fire_lookup(skipping=True)
