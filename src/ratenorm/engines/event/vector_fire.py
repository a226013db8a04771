"""Eq. 3 for sixteen neurons at once; their spikes come out as the bits of a word."""
# An intrinsic's arguments are numba types, and its code is not Python's:
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ratenorm.engines.event.lanes import FLOATS, I8, I16, I32, LANES, address, load


def _current(context: Any, builder: Any, sig: Any, args: Any, first: int, parts: tuple[str, ...]) -> Any:
    """The current of 16 neurons out of the arguments (total, whole, at, units, unit_at) from `first` on; it is cleared
    for the next step."""

    def pointer(k: int, index: int, kind: Any) -> Any:
        return address(context, builder, sig.args[first + k], args[first + k], args[first + index], kind)

    current = None
    if "total" in parts:
        where = pointer(0, 2, FLOATS)
        current = load(builder, where)
        builder.store(ir.Constant(FLOATS, [0.0] * LANES), where, align=4)
    if "whole" in parts:
        wholes = ir.VectorType(I32, LANES)
        where = pointer(1, 2, wholes)
        number = builder.sitofp(builder.load(where, align=4), FLOATS)
        builder.store(ir.Constant(wholes, [0] * LANES), where, align=4)
        value = builder.fmul(number, load(builder, pointer(3, 4, FLOATS)))
        current = value if current is None else builder.fadd(current, value)
    return current


@intrinsic
def settle_row(typingctx, total, whole, at, units, unit_at):
    """total[at : at + 32] += units * whole[at : at + 32], which is cleared."""
    signature = types.void(total, whole, types.uintp, units, types.uintp)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        for half in range(2):
            behind = [builder.add(args[k], ir.Constant(args[k].type, half * LANES)) for k in (2, 4)]
            here = [args[0], args[1], behind[0], args[3], behind[1]]
            sums = _current(context, builder, sig, here, 0, ("total", "whole"))
            builder.store(sums, address(context, builder, sig.args[0], args[0], behind[0], FLOATS), align=4)
        return context.get_dummy_value()

    return signature, generate


def _fire(*parts: str) -> Any:
    """`fire` for currents in `total`, in `whole`, or in both."""

    @intrinsic
    def fire(
        typingctx,
        potential,
        recent,
        at,
        recent_at,
        total,
        whole,
        from_,
        units,
        unit_at,
        base,
        base_at,
        threshold,
        threshold_at,
    ):
        """One step of Eq. 3 for 16 neurons: returns their spikes as bits and clears their current for the next step.

        `recent` counts the spikes of the last 255 steps at most, in bytes beside the currents: a quarter of the
        traffic.
        """
        i = types.uintp
        signature = types.uint16(potential, recent, i, i, total, whole, i, units, i, base, i, threshold, i)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            def pointer(k: int, index: Any) -> Any:
                return address(context, builder, sig.args[k], args[k], index, FLOATS)

            where_v = pointer(0, args[2])
            current = _current(context, builder, sig, args, 4, parts)
            inflow = builder.fadd(current, load(builder, pointer(9, args[10])))
            charged = builder.fadd(load(builder, where_v), inflow)
            theta = load(builder, pointer(11, args[12]))
            zero = ir.Constant(FLOATS, [0.0] * LANES)
            spikes = builder.fcmp_ordered(">=", charged, theta)
            builder.store(builder.fsub(charged, builder.select(spikes, theta, zero)), where_v, align=4)
            small = ir.VectorType(I8, LANES)
            where_n = address(context, builder, sig.args[1], args[1], args[3], small)
            counted = builder.load(where_n, align=1)
            builder.store(builder.add(counted, builder.zext(spikes, small)), where_n, align=1)
            return builder.bitcast(spikes, I16)

        return signature, generate

    return fire


fire_total, fire_whole, fire_both = _fire("total"), _fire("whole"), _fire("total", "whole")


def _fire_constant(groups: int) -> Any:
    """`fire_constant` for 16 * `groups` neurons: several at once hide the latency of each."""

    @intrinsic
    def fire_constant(
        typingctx, potential, counts, at, current, from_, threshold, threshold_at, spikes, word, stride, steps
    ):
        """`steps` steps of Eq. 3 under a constant current, the neurons' state in registers throughout.

        The spikes of step s go to the words spikes[word + s * stride], one for each 16 neurons.
        """
        signature = types.void(
            potential,
            counts,
            types.uintp,
            current,
            types.uintp,
            threshold,
            types.uintp,
            spikes,
            types.uintp,
            types.uintp,
            types.uintp,
        )

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            def pointers(k: int, index: Any) -> list[Any]:
                places = [builder.add(index, ir.Constant(index.type, LANES * g)) for g in range(groups)]
                return [address(context, builder, sig.args[k], args[k], i, FLOATS) for i in places]

            where_v, where_n = pointers(0, args[2]), pointers(1, args[2])
            inflow = [load(builder, p) for p in pointers(3, args[4])]
            theta = [load(builder, p) for p in pointers(5, args[6])]
            zero, one = ir.Constant(FLOATS, [0.0] * LANES), ir.Constant(FLOATS, [1.0] * LANES)
            v = [cgutils.alloca_once(builder, FLOATS) for _ in range(groups)]  # promoted to registers
            n = [cgutils.alloca_once(builder, FLOATS) for _ in range(groups)]
            for g in range(groups):
                builder.store(load(builder, where_v[g]), v[g])
                builder.store(load(builder, where_n[g]), n[g])
            with cgutils.for_range(builder, args[10], intp=args[10].type) as loop:
                place = builder.add(args[8], builder.mul(loop.index, args[9]))
                bits = address(context, builder, sig.args[7], args[7], place, I16)
                for g in range(groups):
                    charged = builder.fadd(builder.load(v[g]), inflow[g])
                    fired = builder.fcmp_ordered(">=", charged, theta[g])
                    builder.store(builder.fsub(charged, builder.select(fired, theta[g], zero)), v[g])
                    builder.store(builder.fadd(builder.load(n[g]), builder.select(fired, one, zero)), n[g])
                    where = builder.gep(bits, [ir.Constant(I32, g)])
                    builder.store(builder.bitcast(fired, I16), where, align=2)
            for g in range(groups):
                builder.store(builder.load(v[g]), where_v[g], align=4)
                builder.store(builder.load(n[g]), where_n[g], align=4)
            return context.get_dummy_value()

        return signature, generate

    return fire_constant


fire_constant_1, fire_constant_2, fire_constant_4 = _fire_constant(1), _fire_constant(2), _fire_constant(4)
