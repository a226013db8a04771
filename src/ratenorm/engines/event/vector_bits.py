"""Words of spikes read: listed, counted, turned into floats, compared with targets."""
# An intrinsic's arguments are numba types, and its code is not Python's:
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ratenorm.engines.event.lanes import EIGHT, FLOATS, I16, I32, LANES, address, has_feature, load, splat


def _list_word(compressing: bool) -> Any:
    @intrinsic
    def list_word(typingctx, entries, at, table, word, first):
        """entries[at : at + n] = first + the positions of the n set bits of the 16-bit `word`; returns n.

        Sixteen entries are written whatever the bits, so that no branch depends on the spikes: what is too many is
        overwritten by the next call. `table` has the positions for each byte, for machines that cannot compress.
        """
        signature = types.uintp(entries, types.uintp, table, types.uintp, types.uint32)

        def compress(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            lanes = ir.VectorType(I32, LANES)
            chosen = ir.VectorType(ir.IntType(1), LANES)
            mask = builder.bitcast(builder.trunc(args[3], I16), chosen)
            numbers = builder.add(ir.Constant(lanes, list(range(LANES))), splat(builder, lanes, args[4]))
            together = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(lanes, [lanes, lanes, chosen]), "llvm.x86.avx512.mask.compress.v16i32"
            )
            found = builder.call(together, [numbers, ir.Constant(lanes, [0] * LANES), mask])
            builder.store(found, address(context, builder, sig.args[0], args[0], args[1], lanes), align=4)
            return builder.ctpop(args[3])

        def look_up(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            whole = args[3].type
            eight = ir.Constant(whole, 8)
            low = builder.and_(args[3], ir.Constant(whole, 255))
            behind = builder.add(args[1], builder.ctpop(low))
            later = builder.add(args[4], ir.Constant(I32, 8))
            for byte, place, start in ((low, args[1], args[4]), (builder.lshr(args[3], eight), behind, later)):
                row = builder.mul(byte, eight)
                positions = load(builder, address(context, builder, sig.args[2], args[2], row, EIGHT))
                found = builder.add(positions, splat(builder, EIGHT, start))
                builder.store(found, address(context, builder, sig.args[0], args[0], place, EIGHT), align=4)
            return builder.ctpop(args[3])

        return signature, compress if compressing else look_up

    return list_word


list_word = _list_word(compressing=has_feature("avx512f"))


@intrinsic
def floats_of(typingctx, out, at, word):
    """out[at : at + 16] = the bits of `word`, as 0.0 or 1.0."""
    signature = types.void(out, types.uintp, types.uint16)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(args[2], ir.VectorType(ir.IntType(1), LANES))
        into = address(context, builder, sig.args[0], args[0], args[1], FLOATS)
        builder.store(builder.uitofp(bits, FLOATS), into, align=4)
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
    numbers, wide = ir.VectorType(I32, LANES), ir.VectorType(ir.DoubleType(), LANES)

    def total(builder: Any, vector: Any, add: Any) -> Any:
        lanes = [builder.extract_element(vector, ir.Constant(I32, k)) for k in range(LANES)]
        while len(lanes) > 1:
            lanes = [add(lanes[k], lanes[k + 1]) for k in range(0, len(lanes), 2)]
        return lanes[0]

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        none, one = ir.Constant(numbers, [0] * LANES), ir.Constant(numbers, [1] * LANES)
        before, aims = cgutils.alloca_once(builder, numbers), cgutils.alloca_once(builder, wide)
        builder.store(none, before)
        builder.store(ir.Constant(wide, [0.0] * LANES), aims)
        with cgutils.for_range(builder, args[2], intp=args[2].type) as loop:
            place = address(context, builder, sig.args[0], args[0], builder.add(args[1], loop.index), I16)
            fired = builder.bitcast(builder.load(place, align=2), ir.VectorType(ir.IntType(1), LANES))
            here = builder.add(args[5], builder.mul(loop.index, ir.Constant(args[2].type, LANES)))
            where = address(context, builder, sig.args[3], args[3], here, numbers)
            count = builder.load(where, align=4)
            goal = load(builder, address(context, builder, sig.args[4], args[4], here, FLOATS))
            builder.store(builder.add(count, builder.select(fired, one, none)), where, align=4)
            builder.store(builder.add(builder.load(before), builder.select(fired, count, none)), before)
            chosen = builder.select(fired, goal, ir.Constant(FLOATS, [0.0] * LANES))
            builder.store(builder.fadd(builder.load(aims), builder.fpext(chosen, wide)), aims)
        sums = (
            builder.sitofp(total(builder, builder.load(before), builder.add), ir.DoubleType()),
            total(builder, builder.load(aims), builder.fadd),
        )
        for k, value in enumerate(sums):
            into = address(context, builder, sig.args[6], args[6], ir.Constant(args[2].type, k), ir.DoubleType())
            builder.store(builder.fadd(builder.load(into, align=8), value), into, align=8)
        return context.get_dummy_value()

    return signature, generate
