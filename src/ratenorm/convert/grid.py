"""Weights on a grid: a sum over spikes is then the same in whatever order it is added, and 16 bits hold a weight.

A float32 holds whole numbers up to 2^24 exactly. If the weights that lead to a neuron are multiples of one power of
two, g, and no sum of them can exceed 2^24 g, every partial sum is exact, and all engines, numbers of threads and sizes
of chunks agree bit for bit. Without this they differ by 1e-7, which now and then moves a spike by a step; a deep
network multiplies such a difference several-fold a layer, until its logits hang on the order of additions.

g is chosen channel by channel, and for convolutions so that even the 16 largest weights of a tap add up to less
than 2^15 g: a weight is then a 16-bit whole number, and the event engine adds several of them in 16 bits. Where weights
are spread like a bell curve, rounding moves them by some 3e-4 of their spread, about as much as half precision would.
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
    Add,
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
SHORT = 15  # of a 16-bit number, besides its sign
TOGETHER = 16  # weights whose sum 16 bits can hold
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


def _steps(net: SpikingNet) -> dict[str, Tensor]:
    """For each layer that can be rounded, the power of two that the weights of each output channel are multiples of."""
    units, bounds = _units(net), _bounds(net)
    steps: dict[str, Tensor] = {}
    targets = [node.inputs[0] for node in net.populations]
    for target in [*targets, net.output]:
        if float(bounds[target].max()) <= 0.0 or target in net.static:
            continue
        g = _power_of_two(MARGIN * bounds[target] / 2**BITS)
        for name, members, aligned in _layers(net, target):
            unit = units[net[name].inputs[0]]
            if unit is not None:
                own = g if aligned and _channels_first(net, name) else g.max()
                step = torch.maximum(own * members / unit, _short_step(net[name].op, unit))
                steps[name] = torch.maximum(steps[name], step) if name in steps else step
    return steps


def _channels_first(net: SpikingNet, name: str) -> bool:
    """Whether all that a layer brings to a channel is in the same row of its tensors."""
    op, shape = net[name].op, net.shapes[name]
    if isinstance(op, Affine):
        return all(tensor.ndim == len(shape) and len(tensor) == shape[0] for tensor in op.tensors().values())
    return isinstance(op, Conv) or len(shape) == 1


def _power_of_two(least: Tensor) -> Tensor:
    """The powers of two that are not less; for zero, one that is next to nothing."""
    return torch.exp2(least.clamp_min(2.0**-149).log2().ceil())


def _short_step(op: Op, unit: float) -> Tensor:
    """For each output channel the least step of which 16 bits hold the sum of the largest weights of a tap.

    A channel counts 1 / unit times at most: that often a window of a pool can spike. Only convolutions, plain or behind
    a 2x2 pool, are worth it.
    """
    if not isinstance(op, Conv) or op.groups > 1 or unit < 0.25:
        return torch.zeros((), dtype=torch.float64)
    sizes = op.weight.double().abs().flatten(2)  # [C_out, C_in, taps]
    largest = sizes.topk(min(TOGETHER, sizes.shape[1]), dim=1).values.sum(1)
    room = 2**SHORT - 1 - TOGETHER / unit  # rounding adds up to half a step to each
    return _power_of_two(largest.flatten(1).amax(1) / unit / room)


def _layers(net: SpikingNet, target: str, members: int = 1, aligned: bool = True) -> Iterator[tuple[str, int, bool]]:
    """The layers whose outputs a current is made of, over how many of them a pool averages, and if channels stay."""
    node = net[target]
    if target in net.static or isinstance(node.op, Fire | MaxPool | Input):
        return
    if isinstance(node.op, _WEIGHTED):
        yield target, members, aligned
        return
    averaged = _members(node.op, net.shapes[node.inputs[0]])
    if averaged is not None:
        for name in node.inputs:
            stays = aligned and isinstance(node.op, Add | AvgPool | AdaptiveAvgPool)
            yield from _layers(net, name, members * averaged, stays)


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
def _bounds(net: SpikingNet) -> dict[str, Tensor]:
    """The largest sum, of any part of its terms, that spikes and biases can bring to a neuron of each channel."""
    values: dict[str, Tensor] = {}
    for node in net.nodes:
        shape = (1, *net.shapes[node.name])
        if isinstance(node.op, Fire):
            values[node.name] = torch.ones(shape, dtype=torch.float64)
        elif node.name in net.static:
            values[node.name] = torch.zeros(shape, dtype=torch.float64)
        else:
            values[node.name] = _magnitude(node.op)(*(values[i] for i in node.inputs))
    return {name: value[0].flatten(1).amax(1) if value.ndim > 2 else value[0] for name, value in values.items()}


def _magnitude(op: Op) -> Op:
    """The operation with every weight positive, in double precision."""
    if isinstance(op, _WEIGHTED):
        return _mapped(op, lambda tensor: tensor.double().abs())
    return op


def _rounded(op: Op, step: Tensor) -> Op:
    """Weights, scale, bias and shift as multiples of powers of two, channel by channel: exact in float32."""

    def rounded(tensor: Tensor) -> Tensor:
        own = step.view(-1, *[1] * (tensor.ndim - 1)) if step.ndim else step
        return (tensor.double() / own).round().mul(own).to(tensor.dtype)

    return _mapped(op, rounded)


def _mapped(op: Op, function: Callable[[Tensor], Tensor]) -> Op:
    changes: dict[str, Any] = {name: function(tensor) for name, tensor in op.tensors().items()}
    return replace(op, **changes)
