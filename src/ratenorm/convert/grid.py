"""Weights on a grid: a sum over spikes is then the same in whatever order it is added.

A float32 holds whole numbers up to 2^24 exactly. If the weights that lead to a population are multiples of one power
of two, g, and no sum of them can exceed 2^24 g, every partial sum is exact, and all engines, numbers of threads and
sizes of chunks agree bit for bit. Without this they differ by 1e-7, which now and then moves a spike by a step; a deep
network multiplies such a difference several-fold a layer, until its logits hang on the order of additions.

g is some 1e-6 of the threshold: weights keep about as many digits as in half precision, and the current of a step is as
exact as a float32 sum of thousands of terms ever was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ratenorm.graph.net import SpikingNet
from ratenorm.graph.ops import (
    AdaptiveAvgPool,
    Affine,
    AvgPool,
    Conv,
    Fire,
    Input,
    Linear,
    MaxPool,
    Op,
)

BITS = 24  # of a float32
MARGIN = 1.001  # rounding may make weights a little larger

_WEIGHTED = (Conv, Linear, Affine)


def on_grid(net: SpikingNet) -> SpikingNet:
    """The network with the weights behind its spikes rounded to a grid, population by population.

    Left as they are: layers that see the analog image, which every engine computes once and alike; and layers behind
    another layer or a pool over, say, nine pixels, whose inputs lie on no grid themselves.
    """
    steps = _steps(net)
    return replace(
        net, nodes=tuple(replace(n, op=_rounded(n.op, steps[n.name])) if n.name in steps else n for n in net.nodes)
    )


def _steps(net: SpikingNet) -> dict[str, float]:
    """For each layer that can be rounded, the power of two that its weights are to be multiples of."""
    units, bounds = _units(net), _bounds(net)
    steps: dict[str, float] = {}
    targets = [node.inputs[0] for node in net.populations]
    for target in [*targets, net.output]:
        if bounds[target] <= 0.0 or target in net.static:
            continue
        g = 2.0 ** (math.ceil(math.log2(MARGIN * bounds[target])) - BITS)
        for name, members in _layers(net, target):
            unit = units[net[name].inputs[0]]
            if unit is not None:
                steps[name] = max(steps.get(name, 0.0), g * members / unit)
    return steps


def _layers(net: SpikingNet, target: str, members: int = 1) -> Iterator[tuple[str, int]]:
    """The layers whose outputs a current is made of, and over how many of them a pool on the way averages."""
    node = net[target]
    if target in net.static or isinstance(node.op, Fire | MaxPool | Input):
        return
    if isinstance(node.op, _WEIGHTED):
        yield target, members
        return
    averaged = _members(node.op, net.shapes[node.inputs[0]])
    if averaged is not None:
        for name in node.inputs:
            yield from _layers(net, name, members * averaged)


def _members(op: Op, shape: tuple[int, ...]) -> int | None:
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


def _units(net: SpikingNet) -> dict[str, float | None]:
    """What the values of a node are multiples of, where spikes are moved, added or averaged only; None elsewhere."""
    units: dict[str, float | None] = {}
    for node in net.nodes:
        known = [unit for i in node.inputs if (unit := units[i]) is not None]
        if isinstance(node.op, Fire):
            units[node.name] = 1.0
        elif isinstance(node.op, Input | Conv | Linear | Affine) or len(known) < len(node.inputs):
            units[node.name] = None
        else:
            members = _members(node.op, net.shapes[node.inputs[0]])
            units[node.name] = None if members is None else min(known) / members
    return units


@torch.no_grad()
def _bounds(net: SpikingNet) -> dict[str, float]:
    """The largest sum, of any part of its terms, that spikes and biases can bring to a neuron of each node."""
    values: dict[str, Tensor] = {}
    for node in net.nodes:
        shape = (1, *net.shapes[node.name])
        if isinstance(node.op, Fire):
            values[node.name] = torch.ones(shape, dtype=torch.float64)
        elif node.name in net.static:
            values[node.name] = torch.zeros(shape, dtype=torch.float64)
        else:
            values[node.name] = _magnitude(node.op)(*(values[i] for i in node.inputs))
    return {name: float(value.max()) for name, value in values.items()}


def _magnitude(op: Op) -> Op:
    """The operation with every weight positive, in double precision."""
    if isinstance(op, _WEIGHTED):
        return _mapped(op, lambda tensor: tensor.double().abs())
    return op


def _rounded(op: Op, step: float) -> Op:
    """Weights, scale, bias and shift as multiples of a power of two: exact in float32, since it is one."""
    return _mapped(op, lambda t: (t.double() / step).round().mul(step).to(t.dtype))


def _mapped(op: Op, function: Callable[[Tensor], Tensor]) -> Op:
    changes: dict[str, Any] = {name: function(tensor) for name, tensor in op.tensors().items()}
    return replace(op, **changes)
