"""How sums are computed so that every engine, batch and number of threads gets the same number, bit for bit.

A sum of floating-point numbers depends on the order of its additions, and each engine has its own order. Two forms of
a sum do not, and every layer takes one of them:

    on a grid   Inputs and weights are multiples of powers of two, and no sum of any of the terms exceeds 2^24 units.
                Every partial sum is exact in float32. Engines may regroup such sums as they like.
    in double   Weights are rounded to 26 bits of the sum of their sizes, inputs to 26 bits of the largest of the image.
                Every partial sum is exact in float64. The result is rounded to float32 once.

All other operations work number by number and in the order in which the graph names them, so they need no care. The
error of the second form is at most 2^-25 of (sum of |weights|) x (largest input), a few times that of float32 itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from ratenorm.graph.net import Graph, Node
from ratenorm.graph.ops import (
    AdaptiveAvgPool,
    Add,
    Affine,
    AvgPool,
    Concat,
    Conv,
    Fire,
    Linear,
    MaxPool,
    Op,
    Slice,
    Upsample,
)

BITS = 24  # of a float32
HALF = 26  # of a weight and of a value whose products are summed in float64, which holds 53
PIECE = 2**17  # values summed in double precision at a time
RELAYED = 8  # bits of a value that a max-pool accumulates over up to 2^16 steps

Pool = AvgPool | AdaptiveAvgPool
Summing = Conv | Linear | AvgPool | AdaptiveAvgPool


@dataclass(frozen=True)
class Lattice:
    """What the values of a node are multiples of, and how large a sum of some of its terms can be; by channel, or [1].

    A channel that is always zero is a multiple of infinity.
    """

    unit: Tensor  # float64, powers of two
    bound: Tensor

    def fits(self, bits: int = BITS) -> bool:
        """Whether numbers of so many bits hold every partial sum."""
        return bool((self.bound <= self.unit * 2.0**bits).all())

    def one(self) -> Lattice:
        """The same for all channels."""
        return Lattice(self.unit.min().reshape(1), self.bound.max().reshape(1))


@dataclass(frozen=True)
class Sums:
    """How each node of a network is summed."""

    on_grid: frozenset[str]  # nodes whose values any grouping of float32 additions gives
    in_double: Mapping[str, Op]  # nodes whose sums need float64: the operation with its weights rounded, in float64
    inexact: Mapping[str, str]  # nodes whose sums depend on the order of additions, and why


@torch.no_grad()
def sums(net: Graph) -> Sums:
    """How each node of a spiking network is summed. Networks of other numbers than float32 are left as they are."""
    if net.dtypes != {torch.float32}:
        kinds = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in net.dtypes))
        why = f"the network holds {kinds}, and sums are exact in float32 only; differences are of the size of rounding"
        return Sums(frozenset(), {}, {node.name: why for node in net.nodes if isinstance(node.op, Summing)})
    known: dict[str, Lattice | None] = {}
    in_double: dict[str, Op] = {}
    for node in net.nodes:
        found = _lattice(net, node, [known[i] for i in node.inputs])
        if isinstance(node.op, Summing) and found is None and not _sums_fit(net, node, known[node.inputs[0]]):
            in_double[node.name] = _rounded(node.op)
        known[node.name] = found
    return Sums(frozenset(name for name, found in known.items() if found is not None), in_double, {})


def in_double(op: Op, x: Tensor) -> Tensor:
    """The value of an operation of `Sums.in_double`, in the precision of `x`.

    Entries of the batch are independent, so many are taken in pieces that stay in the second-level cache: the same
    numbers, sooner.
    """
    together = max(1, PIECE // max(1, x[:1].numel()))
    if len(x) >= 2 * together:
        return torch.cat([_in_double(op, piece) for piece in x.split(together)])
    return _in_double(op, x)


def _in_double(op: Op, x: Tensor) -> Tensor:
    value = _on_steps(x.double())
    if isinstance(op, Conv | Linear):
        bias, op = op.bias, replace(op, bias=None)
        value = _product(op, value)
        if bias is not None:  # after the sum, so that it need not lie on the grid
            value = value + (bias.view(-1, *[1] * (value.ndim - 2)) if isinstance(op, Conv) else bias)
    else:
        value = op(value)
    return value.to(x.dtype)


def _product(op: Conv | Linear, x: Tensor) -> Tensor:
    """A convolution in float64. torch has fast kernels for float32 only: what can be a matrix product becomes one."""
    if isinstance(op, Linear):
        return F.linear(x, op.weight)
    weight, space = op.weight, op.weight.shape[2:]
    if op.groups == 1 and math.prod(space) == 1 and not any(op.padding):
        x = x[(slice(None), slice(None), *(slice(None, None, s) for s in op.stride))]
        return torch.matmul(weight.flatten(1), x.flatten(2)).view(len(x), len(weight), *x.shape[2:])
    if weight.shape[1] == 1 and op.groups == len(weight) == x.shape[1]:
        return _depthwise(op, x)
    return op(x)


def _depthwise(op: Conv, x: Tensor) -> Tensor:
    """Tap by tap: torch would call a matrix product for each channel."""
    padded = F.pad(x, op.padding, op.padding_mode)
    kernel = op.weight.shape[2:]
    out = [
        (length - d * (k - 1) - 1) // s + 1
        for length, k, d, s in zip(padded.shape[2:], kernel, op.dilation, op.stride, strict=True)
    ]
    total = x.new_zeros(*x.shape[:2], *out)
    for tap in range(math.prod(kernel)):
        place = (tap,) if len(kernel) == 1 else divmod(tap, kernel[1])
        seen = tuple(
            slice(at * d, at * d + (n - 1) * s + 1, s)
            for at, d, n, s in zip(place, op.dilation, out, op.stride, strict=True)
        )
        factor = op.weight[(slice(None), 0, *place)].view(-1, *[1] * len(kernel))
        total += padded[(slice(None), slice(None), *seen)] * factor
    return total


def _on_steps(x: Tensor) -> Tensor:
    """Each entry of the batch rounded to multiples of 2^-26 of the power of two above its largest value."""
    largest = x.abs().flatten(1).amax(1) if x[0].numel() else x.new_zeros(len(x))
    step = torch.exp2(torch.frexp(largest).exponent.double() - HALF).view(-1, *[1] * (x.ndim - 1))
    return x.div(step).round_().mul_(step)


def _rounded(op: Op) -> Op:
    """In float64, with weights rounded to 26 bits of the sum of their sizes, output by output."""
    if not isinstance(op, Conv | Linear):
        return op
    weight = op.weight.double()
    sizes = weight.abs().flatten(1).sum(1)
    step = torch.exp2(torch.frexp(sizes).exponent.double() - HALF).view(-1, *[1] * (weight.ndim - 1))
    bias = None if op.bias is None else op.bias.double()
    return replace(op, weight=weight.div(step).round_().mul_(step), bias=bias)


def members(op: Op, shape: tuple[int, ...]) -> int | None:
    """Over how many inputs an operation averages: 1 where it only moves or adds, None where it is no power of two."""
    if isinstance(op, AvgPool):
        whole = not any(op.padding) and not op.ceil_mode
        count = math.prod(op.kernel)
    elif isinstance(op, AdaptiveAvgPool):
        whole = all(length % size == 0 for length, size in zip(shape[-len(op.size) :], op.size, strict=True))
        count = math.prod(length // size for length, size in zip(shape[-len(op.size) :], op.size, strict=True))
    else:
        return 1
    return count if whole and count & (count - 1) == 0 else None


def units_of(tensor: Tensor) -> Tensor:
    """For each row the largest power of two that all its numbers are multiples of; infinity where all are zero."""
    mantissa, exponent = torch.frexp(tensor.double().flatten(1))
    digits = (mantissa.abs() * 2.0**53).long()
    lowest = (digits & -digits).double() * torch.exp2(exponent.double() - 53)
    return torch.where(digits == 0, torch.inf, lowest).amin(1)


def _lattice(net: Graph, node: Node, inputs: list[Lattice | None]) -> Lattice | None:
    """The lattice of a node's values; None where they lie on none that float32 holds."""
    op = node.op
    if isinstance(op, Fire):
        one = torch.ones(1, dtype=torch.float64)
        return Lattice(one, one)
    known = [found for found in inputs if found is not None]
    if not known or len(known) < len(inputs):
        return None
    first = known[0]
    shape = net.shapes[node.inputs[0]]
    if isinstance(op, MaxPool):
        return first if first.fits(RELAYED) else None
    if isinstance(op, AvgPool | AdaptiveAvgPool):
        count = members(op, shape)
        return None if count is None else _if_fits(Lattice(first.unit / count, first.bound))
    if isinstance(op, Conv | Linear):
        return _weighted(op, first, shape)
    if isinstance(op, Affine):
        return _scaled(op, first, shape)
    if isinstance(op, Add):
        lattices = [torch.broadcast_tensors(*parts) for parts in ([k.unit for k in known], [k.bound for k in known])]
        return _if_fits(Lattice(torch.stack(lattices[0]).amin(0), torch.stack(lattices[1]).sum(0)))
    return _moved(net, node, op, known)


def _moved(net: Graph, node: Node, op: Op, known: list[Lattice]) -> Lattice | None:
    """Where values only change their places."""
    if isinstance(op, Concat) and op.dim == 1:
        channels = [net.shapes[i][0] for i in node.inputs]
        units, bounds = ([t.expand(c) for t, c in zip(part, channels, strict=True)] for part in _parts(known))
        return Lattice(torch.cat(units), torch.cat(bounds))
    if isinstance(op, Concat):
        units, bounds = _parts(known)
        return Lattice(torch.cat(units), torch.cat(bounds)).one()
    first = known[0]
    if isinstance(op, Upsample):
        return first
    if isinstance(op, Slice):
        if op.dim > 1 or len(first.unit) == 1:
            return first
        return Lattice(first.unit[op.start : op.stop], first.bound[op.start : op.stop])
    return first.one()


def _parts(known: list[Lattice]) -> tuple[list[Tensor], list[Tensor]]:
    return [k.unit for k in known], [k.bound for k in known]


def _if_fits(found: Lattice) -> Lattice | None:
    return found if found.fits() else None


def _weighted(op: Conv | Linear, x: Lattice, shape: tuple[int, ...]) -> Lattice | None:
    weight = op.weight.double().abs()
    if isinstance(op, Linear):
        if len(shape) > 1:
            x = x.one()
        bound, unit = weight @ x.bound.expand(weight.shape[1]), x.unit.min()
    else:
        each = weight.shape[1]  # input channels of a group
        bounds = x.bound.expand(shape[0]).reshape(op.groups, 1, each)
        taps = weight.flatten(2).sum(2).view(op.groups, -1, each)
        bound = (taps * bounds).sum(2).flatten()
        unit = x.unit.expand(shape[0]).reshape(op.groups, each).amin(1).repeat_interleave(len(weight) // op.groups)
    units = units_of(op.weight) * unit
    if op.bias is not None:
        units, bound = torch.minimum(units, units_of(op.bias.unsqueeze(1))), bound + op.bias.double().abs()
    found = Lattice(units, bound)
    if not found.fits() and isinstance(op, Conv) and found.fits(BITS + 2 * len(op.stride)):
        found = Lattice(units, _where_it_is_largest(op, x, shape))  # a map may be smaller than the kernel
    if not found.fits():
        return None
    return found.one() if isinstance(op, Linear) and len(shape) > 1 else found


def _where_it_is_largest(op: Conv, x: Lattice, shape: tuple[int, ...]) -> Tensor:
    """The bound of each channel, pixel by pixel."""
    bias = None if op.bias is None else op.bias.double().abs()
    positive = replace(op, weight=op.weight.double().abs(), bias=bias)
    bounds = x.bound.expand(shape[0]).reshape(-1, *[1] * (len(shape) - 1)).expand(shape)
    return positive(bounds.unsqueeze(0))[0].flatten(1).amax(1)


def _scaled(op: Affine, x: Lattice, shape: tuple[int, ...]) -> Lattice | None:
    unit, bound = x.unit, x.bound
    if op.scale is not None:
        rows = _rows(op.scale, shape)
        unit, bound = unit * units_of(rows), bound * rows.double().abs().amax(1)
        unit = torch.where(bound == 0, torch.inf, unit)
    if op.shift is not None:
        rows = _rows(op.shift, shape)
        unit, bound = torch.minimum(unit, units_of(rows)), bound + rows.double().abs().amax(1)
    return _if_fits(Lattice(unit, bound))


def _rows(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """[C, …] of a factor or shift that broadcasts over one entry of the batch; [1, …] where channels do not differ."""
    full = tensor.reshape((1,) * (len(shape) - tensor.ndim) + tuple(tensor.shape))
    return full.reshape(len(full), -1)


def _sums_fit(net: Graph, node: Node, x: Lattice | None) -> bool:
    """Whether a pool that averages over no power of two adds numbers of a grid: only its division rounds, alike."""
    op = node.op
    if x is None or not isinstance(op, AvgPool | AdaptiveAvgPool):
        return False
    if isinstance(op, AvgPool):
        count = math.prod(op.kernel)
    else:
        lengths = net.shapes[node.inputs[0]][-len(op.size) :]
        count = math.prod(-(-length // size) + 1 for length, size in zip(lengths, op.size, strict=True))
    return Lattice(x.unit, x.bound * count).fits()
