"""Rows of 16-bit weights added, as vectors: half the bytes of float32, and twice as many lanes an instruction.

The weights of a converted network are whole multiples of a power of two, lane by lane (see convert/grid.py). As whole
numbers they leave room to add several before 16 bits overflow; then the sum is widened and goes to the currents, exact.
"""
# An intrinsic's arguments are numba types, and its code is not Python's:
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ratenorm.engines.event.lanes import FLOATS, I16, I32, LANES, WIDE, address, load

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


Spots = Callable[[Any, Any, Any, Any], list[tuple[Any, Any]]]  # (context, builder, sig, args) -> [(target, offset)]


def _add_all(context: Any, builder: Any, sig: Any, args: Any, spots: list[tuple[Any, Any]]) -> Any:
    """Add to each target the weights that lie at its offset in the rows of all spikes of a pixel."""
    whole = args[2].type

    def vector(k: int, place: Any, kind: Any) -> Any:
        return address(context, builder, sig.args[k], args[k], place, kind)

    def behind(place: Any, half: int) -> Any:
        return builder.add(place, ir.Constant(whole, half * LANES))

    units = [load(builder, vector(6, behind(args[7], half), FLOATS)) for half in range(2)]
    multiply_add = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(FLOATS, [FLOATS, FLOATS, FLOATS]), "llvm.fmuladd.v16f32"
    )
    sums = [cgutils.alloca_once(builder, SHORTS) for _ in spots]
    at = cgutils.alloca_once_value(builder, args[9])
    with _while_less(builder, at, args[10]):
        begin = builder.load(at)
        far = builder.add(begin, args[11])
        stop = builder.select(builder.icmp_unsigned("<", far, args[10]), far, args[10])
        for place in sums:
            builder.store(ir.Constant(SHORTS, [0] * WIDE), place)
        with cgutils.for_range(builder, builder.sub(stop, begin), intp=whole) as loop:
            entry = builder.load(vector(8, builder.add(begin, loop.index), I32), align=4)
            low = builder.zext(builder.and_(entry, ir.Constant(I32, 0xFFFF)), whole)
            digit = builder.lshr(low, args[4])
            channel = builder.sub(low, builder.shl(digit, args[4]))
            row = builder.mul(builder.add(channel, builder.mul(digit, args[5])), args[3])
            source = builder.add(args[2], row)
            for place, (_, offset) in zip(sums, spots, strict=True):
                weight = builder.load(vector(1, builder.add(source, offset), SHORTS), align=2)
                builder.store(builder.add(builder.load(place), weight), place)
        for place, (target, _) in zip(sums, spots, strict=True):
            found = builder.load(place)
            for half in range(2):
                mask = ir.Constant(ir.VectorType(I32, LANES), [half * LANES + j for j in range(LANES)])
                part = builder.shuffle_vector(found, ir.Constant(SHORTS, ir.Undefined), mask)
                value = builder.sitofp(builder.sext(part, ir.VectorType(I32, LANES)), FLOATS)
                into = vector(0, behind(target, half), FLOATS)
                builder.store(builder.call(multiply_add, [value, units[half], load(builder, into)]), into, align=4)
        builder.store(stop, at)
    return context.get_dummy_value()


def _adding(spots: Spots, twelfth: Callable[[Any], Any]) -> Any:
    @intrinsic
    def add_short(
        typingctx, total, short, first, size, shift, inputs, units, unit0, entries, begin, end, most, where, which
    ):
        """Add the weights of all spikes of a pixel, `most` of them in 16 bits before they are widened.

        The low 16 bits of an entry are a channel and, from bit `shift` on, a digit. Rows are `size` long; behind those
        of all `inputs` channels lie those for digit 1, twice as large, and so on.
        """
        i = types.uintp
        signature = types.void(total, short, i, i, i, i, units, i, entries, i, i, i, twelfth(where), i)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _add_all(context, builder, sig, args, spots(context, builder, sig, args))

        return signature, generate

    return add_short


def _window(runs: int, columns: int) -> Any:
    """`runs` runs of `columns` pixels: a 3x3 kernel or what of it lies inside the picture. From `where` on, `which`
    from one run to the next."""

    def spots(context: Any, builder: Any, sig: Any, args: Any) -> list[tuple[Any, Any]]:
        def spot(run: int, column: int) -> tuple[Any, Any]:
            whole = args[13].type
            start = builder.add(args[12], builder.mul(args[13], ir.Constant(whole, run)))
            return (
                builder.add(start, ir.Constant(whole, column * WIDE)),
                ir.Constant(whole, (3 * run + column) * WIDE),
            )

        return [spot(run, column) for run in range(runs) for column in range(columns)]

    return _adding(spots, lambda _: types.uintp)


def _points(count: int) -> Any:
    """`count` pixels that can lie anywhere: the rows [target, offset, …] of the table `where` from row `which` on."""

    def spots(context: Any, builder: Any, sig: Any, args: Any) -> list[tuple[Any, Any]]:
        data = context.make_array(sig.args[12])(context, builder, args[12]).data
        whole = args[13].type

        def number(point: int, column: int) -> Any:
            at = builder.add(builder.mul(args[13], ir.Constant(whole, 3)), ir.Constant(whole, 3 * point + column))
            return builder.zext(builder.load(builder.gep(data, [at])), whole)

        return [(number(point, 0), number(point, 1)) for point in range(count)]

    return _adding(spots, lambda table: table)


short_3x3, short_3x2, short_2x3, short_2x2 = _window(3, 3), _window(3, 2), _window(2, 3), _window(2, 2)
points_1, points_2, points_4 = _points(1), _points(2), _points(4)
