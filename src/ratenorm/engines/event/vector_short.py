"""Rows of 16-bit weights added, as vectors: half the bytes of float32, and twice as many lanes an instruction.

The weights of a converted network are whole multiples of a power of two, lane by lane (see convert/grid.py). As whole
numbers they leave room to add several before 16 bits overflow; then the sum is widened to 32 bits and goes to the
currents, which are whole numbers themselves until their neurons read them. The 32 lanes of a row lie in turn, one of
the first half and one of the second: a pair of them is a 32-bit lane, and widening is one instruction for each half.
"""
# An intrinsic's arguments are numba types, and its code is not Python's:
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ratenorm.engines.event.lanes import I16, I32, LANES, WIDE, address, has_feature

SHORTS = ir.VectorType(I16, WIDE)
WHOLES = ir.VectorType(I32, LANES)

Spot = tuple[Any, Any]  # a target, and the offset of its weights in a row
Spots = Callable[[Any, Any, Any, Any], list[Spot]]  # (context, builder, sig, args)


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


def _opaque(builder: Any, value: Any) -> Any:
    """A number of which the compiler knows nothing: it cannot count the turns of a loop and does not unroll it, where
    whether one more turn is left would be guessed wrong half of the time."""
    return builder.asm(ir.FunctionType(value.type, [value.type]), "", "=r,0", [value], False)


class _Adding:
    """What all kernels do with the arguments (whole, short, first, size, entries, …, most, …)."""

    def __init__(self, context: Any, builder: Any, sig: Any, args: Any, most: Any) -> None:
        self.context, self.builder, self.sig, self.args, self.most = context, builder, sig, args, most

    def vector(self, k: int, place: Any, kind: Any) -> Any:
        return address(self.context, self.builder, self.sig.args[k], self.args[k], place, kind)

    def number(self, value: int) -> Any:
        return ir.Constant(self.args[2].type, value)

    def load(self, target: Any) -> tuple[Any, Any]:
        """The sum at a target, in two halves."""
        places = (target, self.builder.add(target, self.number(LANES)))
        low, high = (self.builder.load(self.vector(0, place, WHOLES), align=4) for place in places)
        return low, high

    def store(self, target: Any, halves: Sequence[Any]) -> None:
        for half, value in enumerate(halves):
            place = self.builder.add(target, self.number(half * LANES))
            self.builder.store(value, self.vector(0, place, WHOLES), align=4)

    def batches(self, at: Any, end: Any, offsets: Sequence[Any], sums: Sequence[Any], take: Any) -> None:
        """Add the rows of the entries from that at `at` to `end`, `most` at a time; take(n, sum) what lies at the n-th
        offset of them. `sums` are places for as many."""
        builder = self.builder
        with _while_less(builder, at, end):
            begin = builder.load(at)
            far = builder.add(begin, self.most)
            stop = builder.select(builder.icmp_unsigned("<", far, end), far, end)
            for place in sums:
                builder.store(ir.Constant(SHORTS, [0] * WIDE), place)
            with _while_less(builder, at, stop):
                here = builder.load(at)
                entry = builder.load(self.vector(4, here, I32), align=4)
                low = builder.zext(builder.and_(entry, ir.Constant(I32, 0xFFFF)), here.type)
                source = builder.add(self.args[2], builder.mul(low, self.args[3]))
                for place, offset in zip(sums, offsets, strict=True):
                    weight = builder.load(self.vector(1, builder.add(source, offset), SHORTS), align=2)
                    builder.store(builder.add(builder.load(place), weight), place)
                builder.store(_opaque(builder, builder.add(here, self.number(1))), at)
            for n, place in enumerate(sums):
                take(n, builder.load(place))


def widened(builder: Any, halves: Sequence[Any], short: Any) -> tuple[Any, Any]:
    """Two vectors of whole numbers plus the lanes of a sum in 16 bits."""
    if has_feature("avx512bw"):  # and with avx512vnni the addition is part of it
        kind = ir.FunctionType(WHOLES, [SHORTS, SHORTS])
        pairs = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.pmaddw.d.512")
        low = builder.call(pairs, [short, ir.Constant(SHORTS, [1, 0] * LANES)])
        high = builder.call(pairs, [short, ir.Constant(SHORTS, [0, 1] * LANES)])
    else:
        both, sixteen = builder.bitcast(short, WHOLES), ir.Constant(WHOLES, [16] * LANES)
        low, high = builder.ashr(builder.shl(both, sixteen), sixteen), builder.ashr(both, sixteen)
    return builder.add(halves[0], low), builder.add(halves[1], high)


def _adding(spots: Spots, twelfth: Callable[[Any], Any]) -> Any:
    @intrinsic
    def add_short(typingctx, whole, short, first, size, entries, begin, end, most, where, which):
        """Add the weights of all spikes of a pixel, `most` of them in 16 bits before they are widened.

        The low 16 bits of an entry are the number of a row of weights, `size` long.
        """
        i = types.uintp
        signature = types.void(whole, short, i, i, entries, i, i, i, twelfth(where), i)

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kernel = _Adding(context, builder, sig, args, args[7])
            found = spots(context, builder, sig, args)
            sums = [cgutils.alloca_once(builder, SHORTS) for _ in found]

            held = [[cgutils.alloca_once_value(builder, half) for half in kernel.load(target)] for target, _ in found]

            def take(n: int, value: Any) -> None:
                halves = widened(builder, [builder.load(half) for half in held[n]], value)
                for half, place in zip(halves, held[n], strict=True):
                    builder.store(half, place)

            at = cgutils.alloca_once_value(builder, args[5])
            kernel.batches(at, args[6], [offset for _, offset in found], sums, take)
            for (target, _), halves in zip(found, held, strict=True):
                kernel.store(target, [builder.load(half) for half in halves])
            return context.get_dummy_value()

        return signature, generate

    return add_short


def _window(runs: int, columns: int) -> Any:
    """`runs` runs of `columns` pixels: a 3x3 kernel or what of it lies inside the picture. From `where` on, `which`
    from one run to the next."""

    def spots(context: Any, builder: Any, sig: Any, args: Any) -> list[Spot]:
        def spot(run: int, column: int) -> Spot:
            whole = args[9].type
            start = builder.add(args[8], builder.mul(args[9], ir.Constant(whole, run)))
            return (
                builder.add(start, ir.Constant(whole, column * WIDE)),
                ir.Constant(whole, (3 * run + column) * WIDE),
            )

        return [spot(run, column) for run in range(runs) for column in range(columns)]

    return _adding(spots, lambda _: types.uintp)


def _points(count: int) -> Any:
    """`count` pixels that can lie anywhere: the rows [target, offset, …] of the table `where` from row `which` on."""

    def spots(context: Any, builder: Any, sig: Any, args: Any) -> list[Spot]:
        data = context.make_array(sig.args[8])(context, builder, args[8]).data
        whole = args[9].type

        def number(point: int, column: int) -> Any:
            at = builder.add(builder.mul(args[9], ir.Constant(whole, 3)), ir.Constant(whole, 3 * point + column))
            return builder.zext(builder.load(builder.gep(data, [at])), whole)

        return [(number(point, 0), number(point, 1)) for point in range(count)]

    return _adding(spots, lambda table: table)


short_3x3, short_3x2, short_2x3, short_2x2 = _window(3, 3), _window(3, 2), _window(2, 3), _window(2, 2)
points_1, points_2, points_4 = _points(1), _points(2), _points(4)


@intrinsic
def short_row(typingctx, whole, short, first, size, entries, begin, marks, mark0, pixels, most, where, stride):
    """The same for a run of pixels side by side, whose windows overlap; returns where their entries end.

    `marks` from `mark0` on says where the entries of each pixel end; the window of the first begins at `where`. The
    sums of three columns stay in registers: from one pixel to the next one column is done and another begins. So there
    are three kinds of turns, one for each column that can be the first, and pixels take turns.
    """
    i = types.uintp
    signature = i(whole, short, i, i, entries, i, marks, i, i, i, i, i)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kernel = _Adding(context, builder, sig, args, args[9])
        sums = [cgutils.alloca_once(builder, SHORTS) for _ in range(9)]
        held = [[[cgutils.alloca_once(builder, WHOLES) for _ in range(2)] for _ in range(3)] for _ in range(3)]
        offsets = [kernel.number(n * WIDE) for n in range(9)]
        at = cgutils.alloca_once_value(builder, args[5])
        pixel = cgutils.alloca_once_value(builder, kernel.number(0))

        def target(column: Any, run: int) -> Any:
            start = builder.add(args[10], builder.mul(args[11], kernel.number(run)))
            return builder.add(start, builder.mul(column, kernel.number(WIDE)))

        def take_up(place: int, column: Any) -> None:
            for run in range(3):
                for half, value in zip(held[place][run], kernel.load(target(column, run)), strict=True):
                    builder.store(value, half)

        def put_down(place: int, column: Any) -> None:
            for run in range(3):
                kernel.store(target(column, run), [builder.load(half) for half in held[place][run]])

        def ahead(count: int) -> Any:
            return builder.add(builder.load(pixel), kernel.number(count))

        for place in range(3):
            take_up(place, kernel.number(place))
        turns = [builder.append_basic_block(f"turn{n}") for n in range(3)]
        bodies = [builder.append_basic_block(f"pixel{n}") for n in range(3)]
        exits = [builder.append_basic_block(f"exit{n}") for n in range(3)]
        over = builder.append_basic_block("over")
        builder.branch(turns[0])
        for n in range(3):

            def take(k: int, value: Any, n: int = n) -> None:
                halves = held[(n + k % 3) % 3][k // 3]
                for half, found in zip(halves, widened(builder, [builder.load(h) for h in halves], value), strict=True):
                    builder.store(found, half)

            builder.position_at_end(turns[n])
            builder.cbranch(builder.icmp_unsigned("<", builder.load(pixel), args[8]), bodies[n], exits[n])
            builder.position_at_end(bodies[n])
            mark = kernel.vector(6, builder.add(args[7], builder.load(pixel)), I32)
            end = builder.zext(builder.load(mark, align=4), args[5].type)
            kernel.batches(at, end, offsets, sums, take)
            put_down(n, ahead(0))
            take_up(n, ahead(3))
            builder.store(ahead(1), pixel)
            builder.branch(turns[(n + 1) % 3])
            builder.position_at_end(exits[n])
            for column in range(2):  # the third was only taken up
                put_down((n + column) % 3, ahead(column))
            builder.branch(over)
        builder.position_at_end(over)
        return builder.load(at)

    return signature, generate
