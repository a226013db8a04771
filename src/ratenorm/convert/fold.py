"""Folding: scales and shifts disappear into the weights before or behind them. The function of the graph never changes.

BatchNorm arrives as an `Affine`, and so does the amplitude of a spike. Rules, applied until none fits:

    up       conv -> affine                 the conv's weight and bias take it
    merge    affine -> affine               one affine
    through  add -> affine                  every summand takes the scale, one of them the shift
    down     affine -> conv, linear         the weight takes the scale (and the bias the shift, where no zero padding
    is) past     affine -> pool, reshape, …     the scale moves behind
    join     affine, … -> concat            one scale behind, channel by channel

What is left over (a scale on a skip connection, a shift before zero padding) stays an `Affine`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from ratenorm.graph.net import Graph, Node
from ratenorm.graph.ops import (
    AdaptiveAvgPool,
    Add,
    Affine,
    AvgPool,
    Concat,
    Conv,
    Linear,
    MaxPool,
    Op,
    Permute,
    Reshape,
    Slice,
    Upsample,
)

G = TypeVar("G", bound=Graph)

_UNSCALED = ".unscaled"
_POOLS = (AvgPool, AdaptiveAvgPool, MaxPool)
_MOVES = (Reshape, Permute, Slice, Upsample)


def fold(graph: G) -> G:
    """The same function with as few `Affine` nodes as the rules allow."""
    work = _Work(graph)
    while any(rule(work) for rule in (_merge, _up, _through_add, _down, _past, _join)):
        pass
    return replace(graph, nodes=tuple(work.nodes))


class _Work:
    """A list of nodes under change. Names of surviving nodes stay, so the output and the populations keep theirs."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = list(graph.nodes)
        self.output = graph.output
        self.shapes = dict(graph.shapes)

    def at(self, name: str) -> Node:
        return next(n for n in self.nodes if n.name == name)

    def readers(self, name: str) -> list[Node]:
        return [n for n in self.nodes if name in n.inputs]

    def alone(self, name: str) -> bool:
        """Read by one node, once, and not the output: may be changed together with its reader."""
        return name != self.output and sum(n.inputs.count(name) for n in self.nodes) == 1

    def put(self, name: str, op: Op, inputs: tuple[str, ...] | None = None) -> None:
        for i, node in enumerate(self.nodes):
            if node.name == name:
                self.nodes[i] = Node(name, op, node.inputs if inputs is None else inputs)

    def drop(self, name: str) -> None:
        self.nodes = [n for n in self.nodes if n.name != name]

    def insert_after(self, place: str, name: str, op: Op, source: str) -> str:
        """A new node reading `source`, right behind `place`."""
        unique, k = name, 1
        while unique in self.shapes:
            k += 1
            unique = f"{name}~{k}"
        index = next(i for i, n in enumerate(self.nodes) if n.name == place)
        self.nodes.insert(index + 1, Node(unique, op, (source,)))
        self.shapes[unique] = self.shapes[source]
        return unique


def _affines(work: _Work) -> list[tuple[Node, Affine]]:
    return [(n, n.op) for n in work.nodes if isinstance(n.op, Affine)]


def channel_vector(value: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """A factor as one entry a channel, [C], or None where it differs within a channel."""
    if value is None:
        return None
    padded = value.reshape((1,) * (len(shape) - value.ndim) + tuple(value.shape))
    if any(s != 1 for s in padded.shape[1:]):
        return None
    return padded.reshape(-1).expand(shape[0])


def _merge(work: _Work) -> bool:
    for node, op in _affines(work):
        before = work.at(node.inputs[0])
        if isinstance(before.op, Affine) and work.alone(before.name):
            work.put(node.name, _compose(before.op, op), before.inputs)
            work.drop(before.name)
            return True
    return False


def _compose(first: Affine, then: Affine) -> Affine:
    scale = _times(first.scale, then.scale)
    shift = first.shift if then.scale is None or first.shift is None else first.shift * then.scale
    if then.shift is not None:
        shift = then.shift if shift is None else shift + then.shift
    return Affine(scale, shift)


def _times(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a * b


def _up(work: _Work) -> bool:
    for node, op in _affines(work):
        before = work.at(node.inputs[0])
        if not isinstance(before.op, Conv | Linear) or not work.alone(before.name):
            continue
        shape = work.shapes[node.name]
        if isinstance(before.op, Linear) and len(shape) != 1:
            continue
        scale, shift = channel_vector(op.scale, shape), channel_vector(op.shift, shape)
        if (op.scale is not None and scale is None) or (op.shift is not None and shift is None):
            continue
        work.put(node.name, _scale_outputs(before.op, scale, shift), before.inputs)
        work.drop(before.name)
        _rename(work, node.name, before.name)
        return True
    return False


def _rename(work: _Work, old: str, new: str) -> None:
    """A convolution that swallowed its BatchNorm keeps the convolution's name."""
    if old == work.output:
        return
    work.nodes = [
        Node(new if n.name == old else n.name, n.op, tuple(new if i == old else i for i in n.inputs))
        for n in work.nodes
    ]
    work.shapes[new] = work.shapes[old]


def _scale_outputs(op: Conv | Linear, scale: Tensor | None, shift: Tensor | None) -> Conv | Linear:
    weight, bias = op.weight, op.bias
    if scale is not None:
        weight = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
        bias = None if bias is None else bias * scale
    if shift is not None:
        bias = shift.clone() if bias is None else bias + shift
    return replace(op, weight=weight, bias=bias)


def _through_add(work: _Work) -> bool:
    for node, op in _affines(work):
        add = work.at(node.inputs[0])
        if not isinstance(add.op, Add) or not work.alone(add.name) or len(set(add.inputs)) != len(add.inputs):
            continue
        takers = [i for i in add.inputs if isinstance(work.at(i).op, Conv | Linear) and work.alone(i)]
        shape = work.shapes[node.name]
        foldable = all(v is None or channel_vector(v, shape) is not None for v in (op.scale, op.shift))
        if not takers or not foldable:
            continue
        inputs = tuple(
            work.insert_after(i, f"{i}.scaled", Affine(op.scale, op.shift if i == takers[0] else None), i)
            for i in add.inputs
        )
        work.put(node.name, add.op, inputs)
        # The scaled summands must stand before the sum, which now sits where the affine was: they do.
        work.drop(add.name)
        _rename(work, node.name, add.name)
        return True
    return False


def _down(work: _Work) -> bool:
    for node, op in _affines(work):
        for reader in work.readers(node.name):
            folded = _scale_inputs(reader.op, op, work.shapes[node.name])
            if folded is None:
                continue
            work.put(reader.name, folded, node.inputs)
            if not work.readers(node.name) and node.name != work.output:
                work.drop(node.name)
                if node.inputs[0] == node.name + _UNSCALED:
                    _rename(work, node.inputs[0], node.name)  # the scale it was parted from is gone
            return True
    return False


def _scale_inputs(reader: Op, affine: Affine, shape: tuple[int, ...]) -> Op | None:
    if isinstance(reader, Linear):
        if len(shape) != 1:
            return None
        scale = None if affine.scale is None else affine.scale.expand(shape)
        shift = None if affine.shift is None else affine.shift.expand(shape)
        weight = reader.weight if scale is None else reader.weight * scale
        bias = reader.bias if shift is None else _plus(reader.bias, reader.weight @ shift)
        return replace(reader, weight=weight, bias=bias)
    if isinstance(reader, Conv):
        scale, shift = channel_vector(affine.scale, shape), channel_vector(affine.shift, shape)
        if (affine.scale is not None and scale is None) or (affine.shift is not None and shift is None):
            return None
        if shift is not None and reader.padding_mode == "constant" and any(reader.padding):
            return None  # the border is zero, not the shift
        weight, bias = reader.weight, reader.bias
        ones = [1] * (weight.ndim - 2)
        group = weight.shape[0] // reader.groups

        def by_group(v: Tensor) -> Tensor:  # [C_in] -> [C_out, C_in / groups, 1, …]
            return v.reshape(reader.groups, 1, -1).expand(-1, group, -1).reshape(weight.shape[0], -1, *ones)

        if shift is not None:
            bias = _plus(bias, (weight * by_group(shift)).flatten(1).sum(1))
        if scale is not None:
            weight = weight * by_group(scale)
        return replace(reader, weight=weight, bias=bias)
    return None


def _plus(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a + b


def _past(work: _Work) -> bool:
    """A pure scale moves behind pools and moves, towards the weights that can take it."""
    for node, op in _affines(work):
        if op.shift is not None or op.scale is None:
            continue
        for reader in work.readers(node.name):
            moved = _moved_scale(reader.op, op.scale, work.shapes[node.name])
            if moved is None:
                continue
            # The reader keeps its place but gets a new name; the scale behind it takes over the old one.
            inner = work.insert_after(node.name, reader.name + _UNSCALED, reader.op, node.inputs[0])
            work.shapes[inner] = work.shapes[reader.name]
            work.put(reader.name, Affine(scale=moved), (inner,))
            if not work.readers(node.name) and node.name != work.output:
                work.drop(node.name)
            return True
    return False


def _moved_scale(op: Op, scale: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    if isinstance(op, _POOLS):
        uniform = channel_vector(scale, shape)
        if uniform is None or (isinstance(op, MaxPool) and bool((scale <= 0).any())):
            return None
        return scale.clone()
    if isinstance(op, _MOVES):
        if scale.numel() == 1:
            return scale.reshape(1).clone()
        full = op(scale.expand(shape).unsqueeze(0))[0]
        slim = full[(slice(None), *[slice(0, 1)] * (full.ndim - 1))]
        return slim.clone() if torch.equal(slim.expand_as(full), full) else full.clone()
    return None


def _join(work: _Work) -> bool:
    """Scales in front of a concatenation of channels become one scale behind it."""
    for node in list(work.nodes):
        if not isinstance(node.op, Concat) or node.op.dim != 1:
            continue
        sources, scales, found = [], [], False
        for name in node.inputs:
            before, shape = work.at(name), work.shapes[name]
            vector = channel_vector(before.op.scale, shape) if isinstance(before.op, Affine) else None
            if isinstance(before.op, Affine) and before.op.shift is None and vector is not None:
                found = True
                sources.append(before.inputs[0])
                scales.append(vector)
            else:
                sources.append(name)
                scales.append(torch.ones(shape[0], dtype=torch.float32))
        if not found:
            continue
        last = max(sources, key=lambda s: [n.name for n in work.nodes].index(s))
        affines = [n for n in node.inputs if n not in sources]
        inner = work.insert_after(last, node.name + _UNSCALED, node.op, sources[0])
        work.put(inner, node.op, tuple(sources))
        work.shapes[inner] = work.shapes[node.name]
        joined = torch.cat(scales).reshape(-1, *[1] * (len(work.shapes[node.name]) - 1))
        work.put(node.name, Affine(scale=joined), (inner,))
        for name in dict.fromkeys(affines):
            if not work.readers(name) and name != work.output:
                work.drop(name)
        return True
    return False
