"""Weights on a grid: a sum over spikes is then the same in whatever order it is added, and 16 bits hold a weight.

A float32 holds whole numbers up to 2^24 exactly. If the weights that lead to a neuron are multiples of one power of
two, g, and no sum of them can exceed 2^24 g, every partial sum is exact, and all engines, numbers of threads and sizes
of chunks agree bit for bit.

g is chosen channel by channel. For convolutions it is chosen so that even the 16, 8 or 4 largest weights of a tap add
up to less than 2^15 g: a weight is then a 16-bit whole number, and the event engine adds several of them in 16 bits.

Rounding must not cost accuracy, so its effect is limited twice. No channel's weights move by more than `ROUNDING` of
their size (root mean square). And the outputs of the clipped ANN, to which the network converges, move by at most
`LIMIT` of theirs on random images: the coarsest grid that keeps to this is taken. What is not on a grid is left alone.
Its sums are computed in double precision, the other exact form (see graph/exact.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ratenorm.graph.exact import BITS, members
from ratenorm.graph.net import SpikingNet, run
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

SHORT = 15  # of a 16-bit number, besides its sign
TOGETHER = (16, 8, 4)  # weights whose sum 16 bits hold: the more, the faster and the coarser
MARGIN = 1.001  # rounding may make weights a little larger
ROUNDING = 4e-4  # of the size of a channel's weights: the most that a grid may move them, 16 bits apart
LIMIT = 6e-4  # of the outputs of the clipped ANN: the most that they may move
IMAGES = 8  # random ones, on which that is measured

_WEIGHTED = (Conv, Linear, Affine)


def on_grid(net: SpikingNet) -> SpikingNet:
    """The network with the weights behind its spikes rounded to a grid, population by population.

    Left as they are: layers that see the analog image; layers behind another layer or a pool over, say, nine pixels,
    whose inputs lie on no grid themselves; and layers that the grid would change too much.
    """
    if net.dtypes != {torch.float32}:
        return net
    candidates = [gridded(net, together) for together in (*TOGETHER, 0)]
    if any(candidate.same_as(net) for candidate in candidates):
        return net
    images = _images(net.input_shape)
    wanted = run(net, images).double()
    for candidate in candidates:
        if float((run(candidate, images) - wanted).norm()) <= LIMIT * float(wanted.norm()):
            return candidate
    return net


def _images(shape: tuple[int, ...]) -> Tensor:
    """Half of them like pixels from 0 to 1, half like pixels that were normalised."""
    generator = torch.Generator().manual_seed(0)
    half = (IMAGES // 2, *shape)
    pixels = torch.rand(half, generator=generator, dtype=torch.float32)
    return torch.cat([pixels, torch.randn(half, generator=generator, dtype=torch.float32)])


def gridded(net: SpikingNet, together: int) -> SpikingNet:
    """On a grid in which 16 bits hold the sum of so many weights of a tap; 0: in which no weight need fit 16 bits."""
    steps = _steps(net, together)
    return replace(
        net, nodes=tuple(replace(n, op=_rounded(n.op, steps[n.name])) if n.name in steps else n for n in net.nodes)
    )


@dataclass(frozen=True)
class _Reach:
    """One way from a layer to a target: the step that the target asks of it."""

    layer: str
    target: str
    step: Tensor


def _steps(net: SpikingNet, together: int) -> dict[str, Tensor]:
    """For each layer that can be rounded, the power of two that the weights of each output channel are multiples of."""
    asked = _asked(net)
    # A target one of whose layers would be too coarse has sums on no grid: nothing is asked of its other layers either.
    given_up = {r.target for r in asked if _moved(net[r.layer].op, r.step) > ROUNDING}
    steps: dict[str, Tensor] = {}
    for reach in asked:
        if reach.target not in given_up:
            op = net[reach.layer].op
            before = steps.get(reach.layer)
            own = _short_step(op, _unit(net, reach.layer), together) if before is None else before
            steps[reach.layer] = torch.maximum(own, reach.step)
    return steps


def _asked(net: SpikingNet) -> list[_Reach]:
    """What every population and the output ask of the layers that lead to them."""
    bounds = _bounds(net)
    asked: list[_Reach] = []
    targets = [node.inputs[0] for node in net.populations]
    for target in dict.fromkeys([*targets, net.output]):
        if float(bounds[target].max()) <= 0.0 or target in net.static:
            continue
        g = _power_of_two(MARGIN * bounds[target] / 2**BITS)
        for name, count, aligned in _layers(net, target):
            unit = _unit(net, name)
            if unit is not None:
                own = g if aligned and _channels_first(net, name) else g.max()
                asked.append(_Reach(name, target, own * count / unit))
    return asked


def _moved(op: Op, step: Tensor) -> float:
    """By how much a step moves the weights of a channel, of their size: root mean squares, the worst channel."""
    rounded = _rounded(op, step)
    name = "scale" if isinstance(op, Affine) else "weight"
    before: Tensor | None = getattr(op, name, None)
    if before is None:
        return 0.0
    rows = before.double().reshape(len(before), -1)
    changes = getattr(rounded, name).double().reshape(len(before), -1) - rows
    size = rows.square().sum(1)
    return float((changes.square().sum(1) / torch.where(size > 0, size, 1.0)).max().sqrt())


def _channels_first(net: SpikingNet, name: str) -> bool:
    """Whether all that a layer brings to a channel is in the same row of its tensors."""
    op, shape = net[name].op, net.shapes[name]
    if isinstance(op, Affine):
        return all(tensor.ndim == len(shape) and len(tensor) == shape[0] for tensor in op.tensors().values())
    return isinstance(op, Conv) or len(shape) == 1


def _power_of_two(least: Tensor) -> Tensor:
    """The powers of two that are not less; for zero, one that is next to nothing."""
    return torch.exp2(least.clamp_min(2.0**-149).log2().ceil())


def _short_step(op: Op, unit: float | None, together: int) -> Tensor:
    """For each output channel the least step of which 16 bits hold the sum of the largest weights of a tap.

    A channel counts 1 / unit times at most: that often a window of a pool can spike. Only convolutions, plain or behind
    a 2x2 pool, are worth it.
    """
    if not isinstance(op, Conv) or op.groups > 1 or unit is None or unit < 0.25 or not together:
        return torch.zeros((), dtype=torch.float64)
    sizes = op.weight.double().abs().flatten(2)  # [C_out, C_in, taps]
    largest = sizes.topk(min(together, sizes.shape[1]), dim=1).values.sum(1)
    room = 2**SHORT - 1 - together / unit  # rounding adds up to half a step to each
    return _power_of_two(largest.flatten(1).amax(1) / unit / room)


def _layers(net: SpikingNet, target: str, count: int = 1, aligned: bool = True) -> Iterator[tuple[str, int, bool]]:
    """The layers whose outputs a current is made of, over how many of them a pool averages, and if channels stay."""
    node = net[target]
    if target in net.static or isinstance(node.op, Fire | MaxPool | Input):
        return
    if isinstance(node.op, _WEIGHTED):
        yield target, count, aligned
        return
    averaged = members(node.op, net.shapes[node.inputs[0]])
    if averaged is not None:
        for name in node.inputs:
            stays = aligned and isinstance(node.op, Add | AvgPool | AdaptiveAvgPool)
            yield from _layers(net, name, count * averaged, stays)


def _unit(net: SpikingNet, layer: str) -> float | None:
    """What the inputs of a layer are multiples of, where they are spikes, moved, added or averaged; else None."""

    def unit(name: str) -> float | None:
        node = net[name]
        if isinstance(node.op, Fire):
            return 1.0
        if isinstance(node.op, Input | Conv | Linear | Affine):
            return None
        known = [found for i in node.inputs if (found := unit(i)) is not None]
        count = members(node.op, net.shapes[node.inputs[0]])
        return None if count is None or len(known) < len(node.inputs) else min(known) / count

    return unit(net[layer].inputs[0])


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
