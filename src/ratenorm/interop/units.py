"""A spiking network in the terms of NIR: `Unit`s, each of which becomes one NIR node.

NIR has no node for averages over odd windows, for shifts, for grouped convolutions that its own type check accepts, or
for sums. So pools go into the weights after them, scales become diagonal 1x1 convolutions, groups become blocks of one
dense weight, and a sum is several edges into one node. Every rule keeps each float32 sum exact: where weights are
changed at all, it is by powers of two.
"""

from __future__ import annotations

import keyword
import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ratenorm.errors import ConversionError, UsageError
from ratenorm.graph.exact import members
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import (
    AdaptiveAvgPool,
    Add,
    Affine,
    AvgPool,
    Concat,
    Conv,
    Fire,
    Input,
    Linear,
    MaxPool,
    Permute,
    Reshape,
    Slice,
    Upsample,
)

Pools = Literal["fold", "sum", "average"]
POOLS: tuple[str, ...] = get_args(Pools)

_REMEDIES: dict[type, str] = {
    MaxPool: "NIR has no max-pooling of spikes: convert with max_pool='average' (command line: --max-pool average)",
    Concat: "NIR has no concatenation: replace torch.cat by a sum, or run this network on ratenorm's own engines",
    Slice: "NIR has no slicing: replace chunk, split and indexing by layers of their own",
    Upsample: "NIR has no upsampling: replace it by layers that keep the size",
    Permute: "NIR has no reordering of dimensions: remove permute, transpose and channel shuffles",
}


_USED_BY_READERS = frozenset((*dir(nn.ModuleDict()), *dir(fx.GraphModule), "state", "graph", "training"))


@dataclass(frozen=True)
class Unit:
    """A NIR node: its kind and values, the units it reads, and what it was made from."""

    name: str
    kind: str  # of NIR: Conv2d, Affine, IF, …
    values: dict[str, Any]  # tensors, tuples and whole numbers, as NIR names them
    inputs: tuple[str, ...] = ()
    source: str = ""  # the node of the network; nothing for what was added, such as a copy
    part: str = "value"  # what of that node: "value", or "copy" of another unit
    pool: tuple[int, ...] = ()  # the window of a pool that the weights took in
    metadata: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Expressed:
    """A network in units, in an order in which they can be evaluated."""

    units: tuple[Unit, ...]
    double: tuple[str, ...]  # units whose sums are exact only as ratenorm computes them (see graph/exact.py)
    exponents: dict[str, tuple[int, ...]]  # populations whose thresholds a power of two brought to 1, by channel


def express(net: SpikingNet, pools: Pools = "fold") -> Expressed:
    """The network in units; ConversionError where NIR has no way to say it."""
    if pools not in POOLS:
        raise UsageError(f"Exporting to NIR: pools is {pools!r}; it must be one of {', '.join(POOLS)}.")
    if net.dtypes != {torch.float32}:
        kinds = ", ".join(sorted(str(kind) for kind in net.dtypes)) or "no tensors at all"
        raise ConversionError(
            f"Exporting to NIR: the network holds {kinds}; its readers compute in float32. "
            "Use `net.to(torch.float32)` before."
        )
    work = _Expressing(net, pools)
    for node in net.nodes:
        work.add(node)
    work.finish()
    units, exponents = _thresholds_to_one(net, work.units)
    double = tuple(u.name for u in units if u.source and u.part == "value" and work.off_grid(u.source))
    return Expressed(tuple(units), double, exponents)


class _Expressing:
    """The units so far, and for each node the units whose sum is its value."""

    def __init__(self, net: SpikingNet, pools: Pools) -> None:
        self.net, self.pools = net, pools
        self.units: list[Unit] = []
        self.sources: dict[str, tuple[str, ...]] = {}
        self.carried: dict[str, tuple[int, ...]] = {}  # nodes whose pool the next weights take in, and its window
        self.unpooled: dict[str, tuple[int, ...]] = {}  # the shape that such a node really has
        self.taken: set[str] = set()

    # -- helpers -------------------------------------------------------------------------------------------------------

    def off_grid(self, name: str) -> bool:
        node = self.net[name]
        return name not in self.net.sums.on_grid and not isinstance(node.op, Fire | Input | Reshape | Add)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.unpooled.get(name, self.net.shapes[name])

    def name(self, wanted: str) -> str:
        """A name that every reader can use: letters, digits and underscores, unique."""
        plain = re.sub(r"\W", "_", wanted, flags=re.ASCII).strip("_") or "node"
        plain = plain if plain[0].isalpha() else f"n{plain}"
        plain = f"{plain}_" if keyword.iskeyword(plain) or plain in _USED_BY_READERS else plain
        unique, k = plain, 1
        while unique.lower() in self.taken:
            k += 1
            unique = f"{plain}_{k}"
        self.taken.add(unique.lower())
        return unique

    def emit(self, node: Node, kind: str, values: dict[str, Any], inputs: tuple[str, ...], **more: Any) -> None:
        unit = Unit(self.name(node.name), kind, values, inputs, node.name, **more)
        self.units.append(unit)
        self.sources[node.name] = (unit.name,)

    def copy(self, inputs: tuple[str, ...], shape: tuple[int, ...], label: str) -> str:
        """A unit that gives the sum of others: where they cannot be edges of their own."""
        kind, values = diagonal(torch.ones(shape[0]), torch.zeros(shape[0]), shape)
        unit = Unit(self.name(f"{label}_sum"), kind, values, inputs, part="copy")
        self.units.append(unit)
        return unit.name

    def refuse(self, node: Node, what: str, remedy: str) -> ConversionError:
        return ConversionError(f"Exporting to NIR: {node.name!r} {what}. Remedy: {remedy}.")

    # -- the walk ------------------------------------------------------------------------------------------------------

    def add(self, node: Node) -> None:
        op = node.op
        if remedy := _REMEDIES.get(type(op)):
            raise self.refuse(node, f"is a {op.kind} of {self.net.shapes[node.name]}", remedy)
        if isinstance(op, Input):
            self.emit(node, "Input", {"shape": self.net.input_shape}, ())
        elif isinstance(op, Add):
            self._sum(node)
        elif isinstance(op, AvgPool | AdaptiveAvgPool):
            self._pool(node, op)
        elif isinstance(op, Reshape):
            self._flatten(node, op)
        elif isinstance(op, Conv):
            self._convolution(node, op)
        elif isinstance(op, Linear):
            self._linear(node, op)
        elif isinstance(op, Affine):
            self._affine(node, op)
        elif isinstance(op, Fire):
            self._population(node, op)
        else:
            raise self.refuse(node, f"is a {op.kind}", "run this network on ratenorm's own engines")

    def finish(self) -> None:
        net, inputs = self.net, self.sources[self.net.output]
        if net.output in self.carried:
            raise ConversionError(
                f"Exporting to NIR: the output {net.output!r} is a pool. Give it a linear layer after."
            )
        if len(inputs) > 1:
            inputs = (self.copy(inputs, net.shapes[net.output], net.output),)
        self.units.append(Unit(self.name("output"), "Output", {"shape": net.shapes[net.output]}, inputs))

    def _sum(self, node: Node) -> None:
        """Two edges into the next node. Sums on no grid are named one by one, so that their order stays."""
        exact, shape = node.name in self.net.sums.on_grid, self.net.shapes[node.name]
        together: tuple[str, ...] = ()
        for one in node.inputs:
            more = self.sources[one]
            if not exact and len(more) > 1:
                more = (self.copy(more, shape, one),)
            if not exact and len(together) > 1:
                together = (self.copy(together, shape, node.name),)
            if set(more) & set(together):  # x + x: NIR has no second edge between two nodes
                more = (self.copy(more, shape, one),)
            together += more
        if len({self.net.shapes[one] for one in node.inputs}) > 1:
            shapes = ", ".join(str(self.net.shapes[one]) for one in node.inputs)
            raise self.refuse(node, f"adds values of the shapes {shapes}", "give both summands one shape")
        self.sources[node.name] = together

    def _pool(self, node: Node, op: AvgPool | AdaptiveAvgPool) -> None:
        before, shape = node.inputs[0], self.shape(node.inputs[0])
        pool = plain_pool(op, shape)
        if pool is None or before in self.carried:
            raise self.refuse(
                node, f"averages over windows of different sizes of {shape}", "pool by a size that divides the input"
            )
        whole = members(op, shape)
        if self.pools != "average" and whole is not None and self._can_carry(node, pool, shape):
            self.carried[node.name] = pool.kernel
            if self.pools == "fold":
                self.sources[node.name], self.unpooled[node.name] = self.sources[before], shape
            else:
                self.emit(node, "SumPool2d", _window(pool), self.sources[before])
        elif self.pools == "average" or whole is None:
            if len(shape) != 3 or (any(pool.padding) and not pool.count_include_pad):
                raise self.refuse(node, f"averages over {shape}, for which NIR has no node", "use AvgPool2d on images")
            self.emit(node, "AvgPool2d", _window(pool), self.sources[before])
        else:  # its readers cannot take it: a convolution that averages each channel
            self.emit(node, *averaging(pool, shape), self.sources[before])

    def _can_carry(self, node: Node, pool: AvgPool, shape: tuple[int, ...]) -> bool:
        """Whether all that read a pool are weights that can take its window in."""
        two = len(shape) == 3
        plain = pool.kernel == pool.stride and not any(pool.padding) and two and node.name != self.net.output
        return plain and all(self._takes(reader, node.name, pool, shape) for reader in self.net.readers[node.name])

    def _takes(self, reader: Node, name: str, pool: AvgPool, shape: tuple[int, ...]) -> bool:
        if isinstance(reader.op, Reshape):
            after = self.net.readers[reader.name]
            taken = all(isinstance(r.op, Linear) and self._on_grid(r) for r in after)
            return len(reader.op.shape) == 1 and taken and reader.name != self.net.output
        whole = all(length % k == 0 for length, k in zip(shape[1:], pool.kernel, strict=True))
        if not isinstance(reader.op, Conv) or not self._on_grid(reader):
            return False
        return self.pools == "sum" or whole or not any(reader.op.padding)

    def _on_grid(self, node: Node) -> bool:
        return node.name in self.net.sums.on_grid

    def _flatten(self, node: Node, op: Reshape) -> None:
        before = node.inputs[0]
        shape = self.shape(before)
        if op.shape == self.net.shapes[before]:
            self.sources[node.name] = self.sources[before]
        elif len(op.shape) == 1:
            # With "sum" the pool is a node of its own; with "fold" the flattened shape is the one before the pool.
            self.emit(node, "Flatten", {"input_type": shape, "start_dim": 0, "end_dim": -1}, self.sources[before])
        else:
            raise self.refuse(node, f"reshapes {shape} to {op.shape}", "NIR can flatten only: use x.flatten(1)")
        if before in self.carried:
            self.carried[node.name] = self.carried[before]
            if before in self.unpooled:
                self.unpooled[node.name] = shape  # of the image that was flattened

    def _convolution(self, node: Node, op: Conv) -> None:
        pool = self.carried.get(node.inputs[0], ())
        if op.padding_mode != "constant":
            raise self.refuse(
                node, f"pads by {op.padding_mode!r}", "NIR pads with zeros only: use padding_mode='zeros'"
            )
        weight = dense(op)
        if pool:
            weight = weight / math.prod(pool)
        stride, padding, dilation = op.stride, op.padding, op.dilation
        if pool and self.pools == "fold":
            weight = widened(weight, dilation, pool)
            stride = tuple(s * k for s, k in zip(stride, pool, strict=True))
            rates = pool[::-1]
            padding = tuple(p * rates[i // 2] for i, p in enumerate(padding))
            dilation = (1,) * len(stride)
        weight, sides = even_sided(weight, padding, dilation)
        if sides is None:
            raise self.refuse(
                node,
                f"has a kernel of {tuple(op.weight.shape[2:])} with padding {op.padding}, which no square kernel with "
                "the same padding on both sides can stand for",
                "use a square kernel with the same padding on both sides",
            )
        shape = self.shape(node.inputs[0])
        one = len(shape) == 2
        values: dict[str, Any] = {
            "input_shape": shape[1] if one else shape[1:],
            "weight": weight,
            "stride": stride[0] if one else stride,
            "padding": sides[0] if one else sides,
            "dilation": dilation[0] if one else dilation,
            "groups": 1,
            "bias": torch.zeros(len(weight)) if op.bias is None else op.bias,
        }
        self.emit(node, "Conv1d" if one else "Conv2d", values, self.sources[node.inputs[0]], pool=pool)

    def _linear(self, node: Node, op: Linear) -> None:
        before = node.inputs[0]
        pool, weight = self.carried.get(before, ()), op.weight
        if len(self.net.shapes[before]) != 1:
            raise self.refuse(
                node,
                f"is a linear layer over the last dimension of {self.net.shapes[before]}",
                "NIR's linear layers take vectors: flatten before, or use a 1x1 convolution",
            )
        if pool and self.pools == "sum":
            weight = weight / math.prod(pool)
        elif pool:
            weight = spread(weight, self.unpooled[before], pool)
        bias = torch.zeros(len(weight)) if op.bias is None else op.bias
        self.emit(node, "Affine", {"weight": weight, "bias": bias}, self.sources[before], pool=pool)

    def _affine(self, node: Node, op: Affine) -> None:
        shape = self.net.shapes[node.name]
        rows = [channel_rows(value, shape, default) for value, default in ((op.scale, 1.0), (op.shift, 0.0))]
        if rows[0] is None or rows[1] is None:
            raise self.refuse(node, "scales the pixels of a channel differently", "use one factor for each channel")
        self.emit(node, *diagonal(rows[0], rows[1], shape), self.sources[node.inputs[0]])

    def _population(self, node: Node, op: Fire) -> None:
        shape = self.net.shapes[node.name]
        if op.signed:
            raise self.refuse(node, "sends negative spikes, which NIR does not know", "convert without signed spikes")
        metadata = {"start": op.start}
        if op.step_bias is not None:
            metadata["step_bias"] = op.step_bias
        full = op.threshold.expand(shape).contiguous()
        values = {"r": torch.ones(shape), "v_threshold": full, "v_reset": torch.zeros(shape)}
        self.emit(node, "IF", values, self.sources[node.inputs[0]], metadata=metadata)


# -- weights in NIR's form, and back -----------------------------------------------------------------------------------


def plain_pool(op: AvgPool | AdaptiveAvgPool, shape: tuple[int, ...]) -> AvgPool | None:
    """The pool with its kernel, where all windows are alike."""
    if isinstance(op, AvgPool):
        return None if op.ceil_mode else op
    lengths = shape[-len(op.size) :]
    if any(length % size for length, size in zip(lengths, op.size, strict=True)):
        return None
    kernel = tuple(length // size for length, size in zip(lengths, op.size, strict=True))
    return AvgPool(kernel, kernel, (0,) * len(kernel))


def _window(pool: AvgPool) -> dict[str, Any]:
    return {"kernel_size": pool.kernel, "stride": pool.stride, "padding": pool.padding}


def dense(op: Conv) -> Tensor:
    """The weight without groups: blocks of zeros where groups do not see each other."""
    if op.groups == 1:
        return op.weight
    rows, each = len(op.weight) // op.groups, op.weight.shape[1]
    whole = op.weight.new_zeros(len(op.weight), each * op.groups, *op.weight.shape[2:])
    for g in range(op.groups):
        whole[g * rows : (g + 1) * rows, g * each : (g + 1) * each] = op.weight[g * rows : (g + 1) * rows]
    return whole


def grouped(weight: Tensor, groups: int) -> Tensor:
    """The blocks of a dense weight: the inverse of `dense`."""
    if groups == 1:
        return weight
    rows, each = len(weight) // groups, weight.shape[1] // groups
    return torch.cat([weight[g * rows : (g + 1) * rows, g * each : (g + 1) * each] for g in range(groups)])


def widened(weight: Tensor, dilation: tuple[int, ...], pool: tuple[int, ...]) -> Tensor:
    """Every tap repeated over the window of a pool, dilation written out as zeros."""
    for dim, (step, window) in enumerate(zip(dilation, pool, strict=True), 2):
        taps = weight.shape[dim]
        spaced = weight.new_zeros(*weight.shape[:dim], (taps - 1) * step + 1, *weight.shape[dim + 1 :])
        spaced[(slice(None),) * dim + (slice(None, None, step),)] = weight
        weight = spaced.repeat_interleave(window, dim)
    return weight


def narrowed(weight: Tensor, dilation: tuple[int, ...], pool: tuple[int, ...]) -> Tensor:
    """The inverse of `widened`."""
    for dim, (step, window) in enumerate(zip(dilation, pool, strict=True), 2):
        weight = weight[(slice(None),) * dim + (slice(None, None, window * step),)]
    return weight


def even_sided(
    weight: Tensor, padding: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[Tensor, tuple[int, ...] | None]:
    """A square kernel with the same padding on both sides, by zeros around it; None where there is none."""
    zeros = zeros_around(tuple(weight.shape[2:]), padding, dilation)
    if zeros is None:
        return weight, None
    dims = len(zeros)
    padded = F.pad(weight, [n for pair in reversed(zeros) for n in pair])
    starts = padding[-2::-2]  # F.pad counts from the last dimension
    return padded, tuple(starts[d] + zeros[d][0] * dilation[d] for d in range(dims))


def zeros_around(
    kernel: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...]
) -> list[tuple[int, int]] | None:
    """How many zeros before and after a kernel make it square and its padding alike on both sides, by dimension."""
    pairs = [(padding[i], padding[i + 1]) for i in range(len(padding) - 2, -1, -2)]
    zeros: list[tuple[int, int]] = []
    for (before, after), step in zip(pairs, dilation, strict=True):
        more, rest = divmod(abs(before - after), step)
        if rest:
            return None
        zeros.append((more, 0) if before < after else (0, more))
    longest = max(k + sum(pair) for k, pair in zip(kernel, zeros, strict=True))
    missing = [longest - k - sum(pair) for k, pair in zip(kernel, zeros, strict=True)]
    if any(m % 2 for m in missing):
        return None
    return [(a + m // 2, b + m // 2) for (a, b), m in zip(zeros, missing, strict=True)]


def trimmed(weight: Tensor, zeros: list[tuple[int, int]]) -> Tensor:
    """The inverse of the zeros around a kernel."""
    for dim, (before, after) in enumerate(zeros, 2):
        weight = weight.narrow(dim, before, weight.shape[dim] - before - after)
    return weight


def spread(weight: Tensor, shape: tuple[int, ...], pool: tuple[int, ...]) -> Tensor:
    """A linear layer after a pool and a flattening as one over the image before the pool."""
    pooled = [length // k for length, k in zip(shape[1:], pool, strict=True)]
    image = weight.reshape(len(weight), shape[0], *pooled) / math.prod(pool)
    for dim, window in enumerate(pool, 2):
        image = image.repeat_interleave(window, dim)
    rest = [length - k * n for length, k, n in zip(shape[1:], pool, pooled, strict=True)]
    return F.pad(image, [n for more in reversed(rest) for n in (0, more)]).flatten(1)


def gathered(weight: Tensor, shape: tuple[int, ...], pool: tuple[int, ...]) -> Tensor:
    """The inverse of `spread`."""
    image = weight.reshape(len(weight), *shape)
    for dim, (length, window) in enumerate(zip(shape[1:], pool, strict=True), 2):
        image = image.narrow(dim, 0, length // window * window)
        image = image[(slice(None),) * dim + (slice(None, None, window),)]
    return image.flatten(1) * math.prod(pool)


def diagonal(scale: Tensor, shift: Tensor, shape: tuple[int, ...]) -> tuple[str, dict[str, Any]]:
    """A factor and a shift for each channel, as a kind of node that every reader knows."""
    weight = torch.diag(scale)
    if len(shape) == 1:
        return "Affine", {"weight": weight, "bias": shift}
    if len(shape) == 2:
        one = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
        return "Conv1d", {"input_shape": shape[1], "weight": weight[..., None], "bias": shift, **one}
    two = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    return "Conv2d", {"input_shape": shape[1:], "weight": weight[..., None, None], "bias": shift, **two}


def averaging(pool: AvgPool, shape: tuple[int, ...]) -> tuple[str, dict[str, Any]]:
    """A pool as a convolution that averages each channel."""
    kind, values = diagonal(torch.full((shape[0],), 1.0 / math.prod(pool.kernel)), torch.zeros(shape[0]), shape)
    weight = values["weight"].expand(-1, -1, *pool.kernel).contiguous()
    one = len(shape) == 2
    moves = {"stride": pool.stride, "padding": pool.padding}
    return kind, {**values, "weight": weight, **{k: v[0] if one else v for k, v in moves.items()}}


def channel_rows(value: Tensor | None, shape: tuple[int, ...], default: float) -> Tensor | None:
    """One number for each channel; None where they differ within a channel."""
    if value is None:
        return torch.full((shape[0],), default)
    full = value.reshape((1,) * (len(shape) - value.ndim) + tuple(value.shape))
    if any(n != 1 for n in full.shape[1:]):
        return None
    return full.reshape(-1).expand(shape[0]).contiguous()


# -- thresholds --------------------------------------------------------------------------------------------------------


def _thresholds_to_one(net: SpikingNet, units: list[Unit]) -> tuple[list[Unit], dict[str, tuple[int, ...]]]:
    """Thresholds that are powers of two become 1, their inverse goes into the weights before: no number is rounded."""
    by_name = {unit.name: unit for unit in units}
    read_by: dict[str, list[str]] = {}
    for unit in units:
        for name in unit.inputs:
            read_by.setdefault(name, []).append(unit.name)
    exponents: dict[str, tuple[int, ...]] = {}
    for unit in units:
        if unit.kind != "IF":
            continue
        shape = tuple(unit.values["v_threshold"].shape)
        rows = channel_rows(_fire(net, unit).threshold, shape, 1.0)
        if rows is None or bool((rows == 1.0).all()):
            continue
        mantissa, exponent = torch.frexp(rows)
        alone = all(read_by[i] == [unit.name] and "weight" in by_name[i].values for i in unit.inputs)
        if not alone or not bool((mantissa == 0.5).all()):
            continue
        lowered = tuple(int(e) - 1 for e in exponent)
        scaled = [_scaled(by_name[i], lowered) for i in unit.inputs] + [_scaled(unit, lowered)]
        if all(one is not None for one in scaled):
            by_name.update({one.name: one for one in scaled if one is not None})
            exponents[unit.name] = lowered
    return [by_name[unit.name] for unit in units], exponents


def _fire(net: SpikingNet, unit: Unit) -> Fire:
    op = net[unit.source].op
    assert isinstance(op, Fire)
    return op


def _scaled(unit: Unit, exponents: tuple[int, ...]) -> Unit | None:
    """A unit with each channel divided by a power of two; None where float32 cannot hold the result exactly."""
    uneven = len(set(exponents)) > 1
    if uneven and any(len(t if k == "start" else t[0]) == 1 for k, t in unit.metadata.items()):
        return None  # one number for all channels would become several
    keys = ("v_threshold",) if unit.kind == "IF" else ("weight", "bias")
    values = {**unit.values, **{k: by_channel(unit.values[k], exponents, -1) for k in keys}}
    metadata = {k: start_by_channel(k, t, exponents, -1) for k, t in unit.metadata.items()}
    exact = all(torch.equal(by_channel(values[k], exponents, 1), unit.values[k]) for k in keys)
    exact = exact and all(
        torch.equal(start_by_channel(k, t, exponents, 1), unit.metadata[k]) for k, t in metadata.items()
    )
    return replace(unit, values=values, metadata=metadata) if exact else None


def by_channel(tensor: Tensor, exponents: tuple[int, ...], sign: int) -> Tensor:
    """A tensor whose first dimension is the channel, times powers of two."""
    factors = torch.tensor([2.0 ** (sign * e) for e in exponents])
    return tensor * factors.view(-1, *[1] * (tensor.ndim - 1))


def start_by_channel(key: str, tensor: Tensor, exponents: tuple[int, ...], sign: int) -> Tensor:
    """The same for what a population keeps: start potentials, [1] or [C, …], and step biases, [steps, …]."""
    rows = tensor.unsqueeze(0) if key == "start" else tensor
    if rows.shape[1] == 1 and len(set(exponents)) == 1:
        scaled = rows * 2.0 ** (sign * exponents[0])
    else:
        factors = torch.tensor([2.0 ** (sign * e) for e in exponents])
        scaled = rows * factors.view(1, -1, *[1] * (rows.ndim - 2))
    return scaled[0] if key == "start" else scaled
