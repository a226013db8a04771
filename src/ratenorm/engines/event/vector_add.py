"""Rows of weights added to currents, as vectors."""
# An intrinsic's arguments are numba types, and its code is not Python's:
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ratenorm.engines.event.lanes import F32, FLOATS, I32, LANES, address, load, splat


@intrinsic
def add_row(typingctx, total, at, rows, row, length, factor):
    """total[at : at + length] += factor * rows[row : row + length], `length` a multiple of 16.

    Four vectors at a time, then two, then one: a row is short, and a test after each would cost as much as the adding.
    """
    signature = types.void(total, types.uintp, rows, types.uintp, types.uintp, types.float32)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = args[4].type
        into = address(context, builder, sig.args[0], args[0], args[1], FLOATS)
        source = address(context, builder, sig.args[2], args[2], args[3], FLOATS)
        factor = splat(builder, FLOATS, args[5])
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(FLOATS, [FLOATS, FLOATS, FLOATS]), "llvm.fmuladd.v16f32"
        )

        def add(first: Any, count: int) -> None:
            places = [builder.add(first, ir.Constant(whole, k)) for k in range(count)]
            weights = [load(builder, builder.gep(source, [p])) for p in places]
            before = [load(builder, builder.gep(into, [p])) for p in places]
            for p, w, t in zip(places, weights, before, strict=True):
                builder.store(builder.call(multiply_add, [w, factor, t]), builder.gep(into, [p]), align=4)

        vectors = builder.lshr(args[4], ir.Constant(whole, 4))
        fours = builder.lshr(vectors, ir.Constant(whole, 2))
        with cgutils.for_range(builder, fours, intp=whole) as loop:
            add(builder.shl(loop.index, ir.Constant(whole, 2)), 4)
        done = builder.shl(fours, ir.Constant(whole, 2))
        pair = builder.and_(vectors, ir.Constant(whole, 2))
        with builder.if_then(builder.icmp_unsigned("!=", pair, ir.Constant(whole, 0))):
            add(done, 2)
        with builder.if_then(builder.trunc(vectors, ir.IntType(1))):
            add(builder.sub(vectors, ir.Constant(whole, 1)), 1)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_where(typingctx, total, at, scale, first, word):
    """total[at + k] += scale[first + k] for the set bits k of a 16-bit word."""
    signature = types.void(total, types.uintp, scale, types.uintp, types.uint16)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        into = address(context, builder, sig.args[0], args[0], args[1], FLOATS)
        amount = load(builder, address(context, builder, sig.args[2], args[2], args[3], FLOATS))
        chosen = builder.bitcast(args[4], ir.VectorType(ir.IntType(1), LANES))
        added = builder.select(chosen, amount, ir.Constant(FLOATS, [0.0] * LANES))
        builder.store(builder.fadd(load(builder, into), added), into, align=4)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def fetch(typingctx, weights, begin, count):
    """Read a block of weights through once, in order: many random first reads would each wait for memory.

    It returns a number that depends on all of them, or the compiler would leave out what nobody needs. Four sums, so
    that no reading waits for an addition.
    """
    signature = types.int32(weights, types.uintp, types.uintp)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole, numbers = args[1].type, ir.VectorType(I32, LANES)
        line = 64 // (sig.args[0].dtype.bitwidth // 8)  # weights of a cache line
        sums = [cgutils.alloca_once_value(builder, ir.Constant(numbers, [0] * LANES)) for _ in range(4)]
        with cgutils.for_range(builder, builder.udiv(args[2], ir.Constant(whole, 4 * line)), intp=whole) as loop:
            start = builder.add(args[1], builder.mul(loop.index, ir.Constant(whole, 4 * line)))
            for k, place in enumerate(sums):
                here = builder.add(start, ir.Constant(whole, k * line))
                found = builder.load(address(context, builder, sig.args[0], args[0], here, numbers), align=4)
                builder.store(builder.add(builder.load(place), found), place)
        total = builder.add(
            builder.add(builder.load(sums[0]), builder.load(sums[1])),
            builder.add(builder.load(sums[2]), builder.load(sums[3])),
        )
        lanes = [builder.extract_element(total, ir.Constant(I32, k)) for k in range(LANES)]
        while len(lanes) > 1:
            lanes = [builder.xor(lanes[k], lanes[k + 1]) for k in range(0, len(lanes), 2)]
        return lanes[0]

    return signature, generate


def _stencil(runs: int, vectors: int, of_runs: int, of_vectors: int) -> tuple[Any, Any]:
    """Additions of one shape: `runs` runs of `vectors` vectors, `stride` apart in the currents.

    They are a part of the `of_runs` runs of `of_vectors` vectors that a channel's weights are. The low 16 bits of an
    entry are a channel and, from bit `shift` on, a digit; the digit chooses the factor.
    """
    row_size = of_runs * of_vectors * LANES
    places = [(r, k) for r in range(runs) for k in range(vectors)]

    def pointers(context: Any, builder: Any, sig: Any, args: Any) -> list[Any]:
        starts = [builder.add(args[1], builder.mul(args[2], ir.Constant(args[1].type, r))) for r in range(runs)]
        return [
            address(
                context,
                builder,
                sig.args[0],
                args[0],
                builder.add(starts[r], ir.Constant(args[1].type, k * LANES)),
                FLOATS,
            )
            for r, k in places
        ]

    def multiply_add(builder: Any) -> Any:
        return cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(FLOATS, [FLOATS, FLOATS, FLOATS]), "llvm.fmuladd.v16f32"
        )

    def add(context: Any, builder: Any, sig: Any, args: Any, entry: Any, read: Any, write: Any) -> None:
        """Add the weights of one entry: read(n) and write(n, sum) give the n-th vector of the currents."""
        whole = args[1].type
        low = builder.zext(builder.and_(entry, ir.Constant(I32, 0xFFFF)), whole)
        digit = builder.lshr(low, args[5])
        channel = builder.sub(low, builder.shl(digit, args[5]))
        source = address(
            context,
            builder,
            sig.args[3],
            args[3],
            builder.add(args[4], builder.mul(channel, ir.Constant(whole, row_size))),
            FLOATS,
        )
        where = address(context, builder, sig.args[6], args[6], builder.add(args[7], digit), F32)
        factor = splat(builder, FLOATS, builder.load(where, align=4))
        for n, (r, k) in enumerate(places):
            weight = load(builder, builder.gep(source, [ir.Constant(I32, r * of_vectors + k)]))
            write(n, builder.call(multiply_add(builder), [weight, factor, read(n)]))

    @intrinsic
    def stencil_one(typingctx, total, at, stride, weights, first, shift, factors, factor0, entry):
        """Add the weights of one spike."""
        signature = types.void(
            total, types.uintp, types.uintp, weights, types.uintp, types.uintp, factors, types.uintp, types.uint32
        )

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            into = pointers(context, builder, sig, args)
            add(
                context,
                builder,
                sig,
                args,
                args[8],
                lambda n: load(builder, into[n]),
                lambda n, value: builder.store(value, into[n], align=4),
            )
            return context.get_dummy_value()

        return signature, generate

    @intrinsic
    def stencil_many(typingctx, total, at, stride, weights, first, shift, factors, factor0, entries, begin, end):
        """Add the weights of all spikes of a pixel, the sums in registers meanwhile."""
        signature = types.void(
            total,
            types.uintp,
            types.uintp,
            weights,
            types.uintp,
            types.uintp,
            factors,
            types.uintp,
            entries,
            types.uintp,
            types.uintp,
        )

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            into = pointers(context, builder, sig, args)
            sums = [cgutils.alloca_once(builder, FLOATS) for _ in places]
            for place, pointer in zip(sums, into, strict=True):
                builder.store(load(builder, pointer), place)
            with cgutils.for_range(builder, builder.sub(args[10], args[9]), intp=args[1].type) as loop:
                where = address(context, builder, sig.args[8], args[8], builder.add(args[9], loop.index), I32)
                add(
                    context,
                    builder,
                    sig,
                    args,
                    builder.load(where, align=4),
                    lambda n: builder.load(sums[n]),
                    lambda n, value: builder.store(value, sums[n]),
                )
            for place, pointer in zip(sums, into, strict=True):
                builder.store(builder.load(place), pointer, align=4)
            return context.get_dummy_value()

        return signature, generate

    return stencil_one, stencil_many


one_3x3, many_3x3 = _stencil(3, 6, 3, 6)  # a 3x3 kernel over 32 channels: three rows of three pixels
one_1x1, many_1x1 = _stencil(1, 2, 1, 2)
# At a border, where the kernel reaches past it: rows x columns that stay inside.
many_3x2, many_2x3, many_2x2 = (_stencil(rows, 2 * columns, 3, 6)[1] for rows, columns in ((3, 2), (2, 3), (2, 2)))
