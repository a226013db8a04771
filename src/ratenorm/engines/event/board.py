"""A board on which a job is written down as plain numbers, so that compiled code can read it without Python.

[address of the job's machine code, parts, numbers …, address and length of each array …, why it stopped]. The boards of
a chunk lie one behind the other. Beside them flags: the turn, and for each helper the last turn it has done. Whoever
reads a flag that another thread has written sees all that was written before it.
"""
# An intrinsic's arguments are numba types, and its code is not Python's:
# mypy: disable-error-code="call-arg, return-value, no-untyped-def, no-any-return, attr-defined"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from ratenorm.engines.event.arrays import Array, address_of, zeros
from ratenorm.engines.event.compiled import compiled

Where = list[int]  # address and length of some arrays

CODE, PARTS, FIRST_NUMBER, FIRST_ARRAY, ARRAYS = 0, 1, 2, 22, 26
STOPPED = FIRST_ARRAY + 2 * ARRAYS  # 0 where nothing did
SIZE = STOPPED + 1
BYTES = 8 * SIZE
FAILED = 1  # a part of the job could not be done; other reasons are the jobs' own
LINE = 8  # numbers of a cache line: threads that write to one line would slow each other down


def new_boards(count: int) -> Array:
    """[board, number], empty."""
    return zeros(count * SIZE, np.int64).reshape(count, SIZE)


def new_flags(helpers: int) -> Array:
    """A turn and the flags of some helpers, a cache line each."""
    return zeros((1 + helpers) * LINE, np.int64)


def write(board: Array, code: int, parts: int, numbers: Sequence[int], arrays: Sequence[int]) -> None:
    """Write a job down. Its arrays, as of `where`, must live until it is done."""
    board[: FIRST_NUMBER + len(numbers)] = (code, parts, *numbers)
    board[FIRST_ARRAY : FIRST_ARRAY + len(arrays)] = arrays


def where(*arrays: Array) -> Where:
    """Address and length of each array. It takes a microsecond each, so keep what does not change."""
    return [number for a in arrays for number in (address_of(a), a.size)]


@intrinsic
def acquire(typingctx, flags, index):
    """Read a flag."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        return builder.load_atomic(builder.gep(data, [args[1]]), "acquire", 8)

    return types.int64(flags, types.uintp), generate


@intrinsic
def release(typingctx, flags, index, value):
    """Write a flag."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        builder.store_atomic(args[2], builder.gep(data, [args[1]]), "release", 8)
        return context.get_dummy_value()

    return types.void(flags, types.uintp, types.int64), generate


@intrinsic
def _pointer(typingctx, address, kind):
    """An address as a pointer to numbers of a kind."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.PointerType(context.get_data_type(kind.dtype)))

    return types.CPointer(kind.dtype)(types.int64, kind), generate


@compiled
def array_of(place: Array, kind: type) -> Array:
    """The array that lies at (address, length), of that kind of numbers."""
    return carray(_pointer(place[0], kind), (place[1],))


@compiled
def heading(address: int) -> tuple[int, int]:
    """Code and parts of the job on the board at an address."""
    board = carray(_pointer(address, np.int64), (FIRST_NUMBER,))
    return board[CODE], board[PARTS]


@compiled
def read(address: int) -> tuple[int, Array, Array]:
    """Parts, numbers and places of arrays of the board at an address."""
    board = carray(_pointer(address, np.int64), (SIZE,))
    return board[PARTS], board[FIRST_NUMBER:FIRST_ARRAY], board[FIRST_ARRAY:STOPPED].reshape((ARRAYS, 2))


@compiled
def stop(address: int, why: int) -> None:
    """The job on the board at an address cannot go on, or what follows it cannot."""
    carray(_pointer(address, np.int64), (SIZE,))[STOPPED] = why


@compiled
def stopped(address: int) -> int:
    """Why the job on the board at an address stopped."""
    return carray(_pointer(address, np.int64), (SIZE,))[STOPPED]


def _caller(arguments: int) -> Any:
    """An intrinsic that runs machine code, by its address, on so many whole numbers."""
    number = ir.IntType(64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        function = ir.FunctionType(number, [number] * arguments)
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), args[1:])

    return types.int64(*[types.int64] * (1 + arguments)), generate


@intrinsic
def call(typingctx, code, board, part):
    """Run machine code for one part of the job on a board; both by address."""
    return _caller(2)


@intrinsic
def call_add(typingctx, code, board, part, block, row, rows, settle):
    """Run the machine code of `jobs.add` within one part of the job on a board."""
    return _caller(6)
