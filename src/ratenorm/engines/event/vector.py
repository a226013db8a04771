"""Sixteen lanes at once: the few vector instructions that the kernels are made of, as LLVM IR.

Left to itself the compiler does not see that a comparison of sixteen potentials is a word of sixteen spikes, or that a
row of weights is a handful of registers. Written as vectors of fixed width it does, on any processor: LLVM splits or
joins them to what the machine has. Offsets are in elements; arrays are one-dimensional and contiguous, and nothing is
checked: the callers keep every offset inside.
"""
# An intrinsic's arguments are numba types, and its code is not Python's:
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
_F32, _I32, _I16, _I8 = ir.FloatType(), ir.IntType(32), ir.IntType(16), ir.IntType(8)
_VF = ir.VectorType(_F32, LANES)
_V8 = ir.VectorType(_I32, 8)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, vector: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index], inbounds=True), vector.as_pointer())


def _load(builder: Any, pointer: Any) -> Any:
    return builder.load(pointer, align=4)


def _splat(builder: Any, vector: Any, scalar: Any) -> Any:
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(_I32, 0))
    mask = ir.Constant(ir.VectorType(_I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


@intrinsic
def add_row(typingctx, total, at, rows, row, length, factor):
    """total[at : at + length] += factor * rows[row : row + length], `length` a multiple of 16.

    Four vectors at a time, then two, then one: a row is short, and a test after each would cost as much as the adding.
    """
    signature = types.void(total, types.uintp, rows, types.uintp, types.uintp, types.float32)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = args[4].type
        into = _address(context, builder, sig.args[0], args[0], args[1], _VF)
        source = _address(context, builder, sig.args[2], args[2], args[3], _VF)
        factor = _splat(builder, _VF, args[5])
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VF, [_VF, _VF, _VF]), "llvm.fmuladd.v16f32"
        )

        def add(first: Any, count: int) -> None:
            places = [builder.add(first, ir.Constant(whole, k)) for k in range(count)]
            weights = [_load(builder, builder.gep(source, [p])) for p in places]
            before = [_load(builder, builder.gep(into, [p])) for p in places]
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


def _stencil(runs: int, vectors: int) -> tuple[Any, Any]:
    """Additions of one shape: `runs` runs of `vectors` vectors, `stride` apart in the currents.

    The low 16 bits of an entry are a channel and, from bit `shift` on, a digit; the digit chooses the factor.
    """
    row_size = runs * vectors * LANES
    places = [(r, k) for r in range(runs) for k in range(vectors)]

    def pointers(context: Any, builder: Any, sig: Any, args: Any) -> list[Any]:
        starts = [builder.add(args[1], builder.mul(args[2], ir.Constant(args[1].type, r))) for r in range(runs)]
        return [
            _address(
                context,
                builder,
                sig.args[0],
                args[0],
                builder.add(starts[r], ir.Constant(args[1].type, k * LANES)),
                _VF,
            )
            for r, k in places
        ]

    def multiply_add(builder: Any) -> Any:
        return cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VF, [_VF, _VF, _VF]), "llvm.fmuladd.v16f32"
        )

    def add(context: Any, builder: Any, sig: Any, args: Any, entry: Any, read: Any, write: Any) -> None:
        """Add the weights of one entry: read(n) and write(n, sum) give the n-th vector of the currents."""
        whole = args[1].type
        low = builder.zext(builder.and_(entry, ir.Constant(_I32, 0xFFFF)), whole)
        digit = builder.lshr(low, args[5])
        channel = builder.sub(low, builder.shl(digit, args[5]))
        source = _address(
            context,
            builder,
            sig.args[3],
            args[3],
            builder.add(args[4], builder.mul(channel, ir.Constant(whole, row_size))),
            _VF,
        )
        where = _address(context, builder, sig.args[6], args[6], builder.add(args[7], digit), _F32)
        factor = _splat(builder, _VF, builder.load(where, align=4))
        for n in range(len(places)):
            weight = _load(builder, builder.gep(source, [ir.Constant(_I32, n)]))
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
                lambda n: _load(builder, into[n]),
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
            sums = [cgutils.alloca_once(builder, _VF) for _ in places]
            for place, pointer in zip(sums, into, strict=True):
                builder.store(_load(builder, pointer), place)
            with cgutils.for_range(builder, builder.sub(args[10], args[9]), intp=args[1].type) as loop:
                where = _address(context, builder, sig.args[8], args[8], builder.add(args[9], loop.index), _I32)
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


one_3x3, many_3x3 = _stencil(3, 6)  # a 3x3 kernel over 32 channels: three rows of three pixels
one_1x1, many_1x1 = _stencil(1, 2)


@intrinsic
def fire_lanes(typingctx, potential, recent, at, current, from_, base, base_at, threshold, threshold_at):
    """One step of Eq. 3 for 16 neurons: returns their spikes as bits and clears their current for the next step.

    `recent` counts the spikes of the last 255 steps at most, in bytes beside the currents: a quarter of the traffic.
    """
    signature = types.uint16(
        potential, recent, types.uintp, current, types.uintp, base, types.uintp, threshold, types.uintp
    )

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        def pointer(k: int, index: Any) -> Any:
            return _address(context, builder, sig.args[k], args[k], index, _VF)

        where_v, where_i = pointer(0, args[2]), pointer(3, args[4])
        inflow = builder.fadd(_load(builder, where_i), _load(builder, pointer(5, args[6])))
        charged = builder.fadd(_load(builder, where_v), inflow)
        theta = _load(builder, pointer(7, args[8]))
        zero = ir.Constant(_VF, [0.0] * LANES)
        spikes = builder.fcmp_ordered(">=", charged, theta)
        builder.store(builder.fsub(charged, builder.select(spikes, theta, zero)), where_v, align=4)
        small = ir.VectorType(_I8, LANES)
        where_n = _address(context, builder, sig.args[1], args[1], args[4], small)
        counted = builder.load(where_n, align=1)
        builder.store(builder.add(counted, builder.zext(spikes, small)), where_n, align=1)
        builder.store(zero, where_i, align=4)
        return builder.bitcast(spikes, _I16)

    return signature, generate


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
                return [_address(context, builder, sig.args[k], args[k], i, _VF) for i in places]

            where_v, where_n = pointers(0, args[2]), pointers(1, args[2])
            inflow = [_load(builder, p) for p in pointers(3, args[4])]
            theta = [_load(builder, p) for p in pointers(5, args[6])]
            zero, one = ir.Constant(_VF, [0.0] * LANES), ir.Constant(_VF, [1.0] * LANES)
            v = [cgutils.alloca_once(builder, _VF) for _ in range(groups)]  # promoted to registers
            n = [cgutils.alloca_once(builder, _VF) for _ in range(groups)]
            for g in range(groups):
                builder.store(_load(builder, where_v[g]), v[g])
                builder.store(_load(builder, where_n[g]), n[g])
            with cgutils.for_range(builder, args[10], intp=args[10].type) as loop:
                place = builder.add(args[8], builder.mul(loop.index, args[9]))
                bits = _address(context, builder, sig.args[7], args[7], place, _I16)
                for g in range(groups):
                    charged = builder.fadd(builder.load(v[g]), inflow[g])
                    fired = builder.fcmp_ordered(">=", charged, theta[g])
                    builder.store(builder.fsub(charged, builder.select(fired, theta[g], zero)), v[g])
                    builder.store(builder.fadd(builder.load(n[g]), builder.select(fired, one, zero)), n[g])
                    where = builder.gep(bits, [ir.Constant(_I32, g)])
                    builder.store(builder.bitcast(fired, _I16), where, align=2)
            for g in range(groups):
                builder.store(builder.load(v[g]), where_v[g], align=4)
                builder.store(builder.load(n[g]), where_n[g], align=4)
            return context.get_dummy_value()

        return signature, generate

    return fire_constant


fire_constant_1, fire_constant_2, fire_constant_4 = _fire_constant(1), _fire_constant(2), _fire_constant(4)


def _can_compress() -> bool:
    """Whether the machine has an instruction that moves chosen lanes together."""
    return not (config.CPU_NAME or config.CPU_FEATURES) and bool(get_host_cpu_features().get("avx512f", False))


@intrinsic
def list_word(typingctx, entries, at, table, word, first):
    """entries[at : at + n] = first + the positions of the n set bits of the 16-bit `word`; returns n.

    Sixteen entries are written whatever the bits, so that no branch depends on the spikes: what is too many is
    overwritten by the next call. `table` has the positions for each byte, for machines that cannot compress.
    """
    signature = types.uintp(entries, types.uintp, table, types.uintp, types.uint32)

    def compress(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lanes = ir.VectorType(_I32, LANES)
        chosen = ir.VectorType(ir.IntType(1), LANES)
        mask = builder.bitcast(builder.trunc(args[3], _I16), chosen)
        numbers = builder.add(ir.Constant(lanes, list(range(LANES))), _splat(builder, lanes, args[4]))
        together = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(lanes, [lanes, lanes, chosen]), "llvm.x86.avx512.mask.compress.v16i32"
        )
        found = builder.call(together, [numbers, ir.Constant(lanes, [0] * LANES), mask])
        builder.store(found, _address(context, builder, sig.args[0], args[0], args[1], lanes), align=4)
        return builder.ctpop(args[3])

    def look_up(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = args[3].type
        eight = ir.Constant(whole, 8)
        low = builder.and_(args[3], ir.Constant(whole, 255))
        behind = builder.add(args[1], builder.ctpop(low))
        later = builder.add(args[4], ir.Constant(_I32, 8))
        for byte, place, start in ((low, args[1], args[4]), (builder.lshr(args[3], eight), behind, later)):
            row = builder.mul(byte, eight)
            positions = _load(builder, _address(context, builder, sig.args[2], args[2], row, _V8))
            found = builder.add(positions, _splat(builder, _V8, start))
            builder.store(found, _address(context, builder, sig.args[0], args[0], place, _V8), align=4)
        return builder.ctpop(args[3])

    return signature, compress if _can_compress() else look_up


@intrinsic
def floats_of(typingctx, out, at, word):
    """out[at : at + 16] = the bits of `word`, as 0.0 or 1.0."""
    signature = types.void(out, types.uintp, types.uint16)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(args[2], ir.VectorType(ir.IntType(1), LANES))
        into = _address(context, builder, sig.args[0], args[0], args[1], _VF)
        builder.store(builder.uitofp(bits, _VF), into, align=4)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def ones(typingctx, word):
    """The number of set bits."""
    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return signature, generate


@intrinsic
def spikes_against(typingctx, spikes, word, words, counts, target, at, out):
    """For 16 * `words` neurons: out[0] += the earlier counts of those that spike, out[1] += their targets.

    Their `counts` then go up by one. Whole numbers are summed as such, targets in float64.
    """
    signature = types.void(spikes, types.uintp, types.uintp, counts, target, types.uintp, out)
    numbers, wide = ir.VectorType(_I32, LANES), ir.VectorType(ir.DoubleType(), LANES)

    def total(builder: Any, vector: Any, add: Any) -> Any:
        lanes = [builder.extract_element(vector, ir.Constant(_I32, k)) for k in range(LANES)]
        while len(lanes) > 1:
            lanes = [add(lanes[k], lanes[k + 1]) for k in range(0, len(lanes), 2)]
        return lanes[0]

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        none, one = ir.Constant(numbers, [0] * LANES), ir.Constant(numbers, [1] * LANES)
        before, aims = cgutils.alloca_once(builder, numbers), cgutils.alloca_once(builder, wide)
        builder.store(none, before)
        builder.store(ir.Constant(wide, [0.0] * LANES), aims)
        with cgutils.for_range(builder, args[2], intp=args[2].type) as loop:
            place = _address(context, builder, sig.args[0], args[0], builder.add(args[1], loop.index), _I16)
            fired = builder.bitcast(builder.load(place, align=2), ir.VectorType(ir.IntType(1), LANES))
            here = builder.add(args[5], builder.mul(loop.index, ir.Constant(args[2].type, LANES)))
            where = _address(context, builder, sig.args[3], args[3], here, numbers)
            count = builder.load(where, align=4)
            goal = _load(builder, _address(context, builder, sig.args[4], args[4], here, _VF))
            builder.store(builder.add(count, builder.select(fired, one, none)), where, align=4)
            builder.store(builder.add(builder.load(before), builder.select(fired, count, none)), before)
            chosen = builder.select(fired, goal, ir.Constant(_VF, [0.0] * LANES))
            builder.store(builder.fadd(builder.load(aims), builder.fpext(chosen, wide)), aims)
        sums = (
            builder.sitofp(total(builder, builder.load(before), builder.add), ir.DoubleType()),
            total(builder, builder.load(aims), builder.fadd),
        )
        for k, value in enumerate(sums):
            into = _address(context, builder, sig.args[6], args[6], ir.Constant(args[2].type, k), ir.DoubleType())
            builder.store(builder.fadd(builder.load(into, align=8), value), into, align=8)
        return context.get_dummy_value()

    return signature, generate
