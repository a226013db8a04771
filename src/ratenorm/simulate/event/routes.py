"""The ways from one population's spikes to another's currents.

A current is a sum. A summand that is a convolution, a linear layer or a plain scale of spikes, with pooling,
flattening, concatenation or a scale per channel in between, becomes one `Route` for each population that it starts
from. Any other summand is left to torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ratenorm.graph.net import SpikingNet
from ratenorm.graph.ops import AdaptiveAvgPool, Add, Affine, AvgPool, Concat, Conv, Linear, Reshape
from ratenorm.simulate.event.layout import Layout
from ratenorm.simulate.event.pairs import (
    Pairs,
    chain,
    conv_pairs,
    disjoint_windows,
    flat_pairs,
    pool_pairs,
    same_pairs,
)
from ratenorm.simulate.event.tables import Array

DIGIT_BITS = 4  # of a list entry, where spikes are pooled

Pool = AvgPool | AdaptiveAvgPool


@dataclass(frozen=True)
class Window:
    """A 3x3 convolution in steps of one pixel: every pixel of the grid reaches a window of one shape."""

    height: int
    width: int
    top: int  # zero padding
    left: int


@dataclass(frozen=True)
class Route:
    """Spikes of `source`, pooled over `windows` if there are any, along `pairs` over `weight`."""

    source: str
    pairs: Pairs
    grid: int  # pixels the pairs start from: the windows, or the source's own
    windows: Array | None  # [window, member]
    share: float  # of a member of a window
    weight: Tensor  # [C_in, taps, C_out]; [C, taps] where a channel reaches only itself
    diagonal: bool
    window: Window | None = None
    skip: bool = False  # every neuron reaches its twin only: a skip connection

    @property
    def digits(self) -> int:
        """Binary digits of the largest count of a window."""
        return 1 if self.windows is None else int(self.windows.shape[1]).bit_length()

    @property
    def shift(self) -> int:
        """Bits of a list entry that are a channel; the digit is above."""
        return 16 if self.windows is None else 16 - DIGIT_BITS

    @cached_property
    def additions(self) -> int:
        """Synaptic operations if every input spiked once, for the choice between events and convolution."""
        return self.pairs.count * self.weight[:, 0].numel()


@dataclass(frozen=True)
class _Way:
    """What was met on the way back from a layer to the spikes it reads."""

    source: str
    first_channel: int
    pool: Pool | None = None
    scale: Tensor | None = None  # [C]


def summands(net: SpikingNet, name: str) -> list[str]:
    """The nodes whose sum a node is."""
    node = net[name]
    if isinstance(node.op, Add):
        return [found for i in node.inputs for found in summands(net, i)]
    return [name]


def routes(net: SpikingNet, name: str, spiking: Callable[[str], bool]) -> list[Route] | None:
    """The routes that make up a summand, or None where torch has to compute it."""
    node = net[name]
    if isinstance(node.op, Conv):
        if node.op.groups > 1 and not _depthwise(node.op):
            return None
        ways = _ways(net, node.inputs[0], spiking)
        return None if ways is None else _all([_conv_route(net, node.op, node.inputs[0], way) for way in ways])
    if isinstance(node.op, Linear) and len(net.shapes[name]) == 1:
        return _linear_routes(net, node.op, node.inputs[0], spiking)
    ways = _ways(net, name, spiking)
    if ways is None or len(ways) != 1:
        return None
    return _all([_same_route(net, name, ways[0])])


def _all(found: list[Route | None]) -> list[Route] | None:
    complete = [route for route in found if route is not None]
    return complete if len(complete) == len(found) else None


def _ways(net: SpikingNet, name: str, spiking: Callable[[str], bool]) -> list[_Way] | None:
    """Back from `name` to spikes, over at most one pool."""
    node = net[name]
    if spiking(name):
        return [_Way(name, 0)] if Layout.of(net.shapes[name]).listable else None
    if isinstance(node.op, AvgPool | AdaptiveAvgPool):
        behind = _ways(net, node.inputs[0], spiking)
        if behind is None or any(way.pool is not None for way in behind):
            return None
        return [replace(way, pool=node.op) for way in behind]
    if isinstance(node.op, Affine):
        shape = net.shapes[name]
        scale = None if node.op.scale is None else _per_channel(node.op.scale, shape)
        behind = _ways(net, node.inputs[0], spiking)
        if behind is None or (scale is None and node.op.scale is not None):
            return None
        return [way if scale is None else _scaled(way, scale, net) for way in behind]
    if isinstance(node.op, Concat) and node.op.dim == 1:
        joined: list[_Way] = []
        channel = 0
        for part in node.inputs:
            behind = _ways(net, part, spiking)
            if behind is None:
                return None
            joined += [replace(way, first_channel=way.first_channel + channel) for way in behind]
            channel += net.shapes[part][0]
        return joined
    return None


def _scaled(way: _Way, scale: Tensor, net: SpikingNet) -> _Way:
    own = scale[way.first_channel : way.first_channel + net.shapes[way.source][0]]
    return replace(way, scale=own if way.scale is None else way.scale * own)


def _per_channel(value: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """[C], or None where the value differs within a channel."""
    full = value.reshape((1,) * (len(shape) - value.ndim) + tuple(value.shape))
    if any(s != 1 for s in full.shape[1:]):
        return None
    return full.reshape(-1).expand(shape[0])


def _depthwise(conv: Conv) -> bool:
    return conv.weight.shape[1] == 1 and conv.groups == conv.weight.shape[0]


def _conv_route(net: SpikingNet, conv: Conv, read: str, way: _Way) -> Route | None:
    space = net.shapes[read][1:]
    pairs = conv_pairs(conv, space)
    channels = slice(way.first_channel, way.first_channel + net.shapes[way.source][0])
    flipped = conv.weight.flatten(2).flip(2)  # taps backwards, as in the pairs
    if conv.groups > 1:
        weight = flipped[channels, 0]
        return None if way.first_channel else _route(net, way, pairs, weight, space)
    found = _route(net, way, pairs, flipped[:, channels].permute(1, 2, 0), space)
    if found is None or found.grid != torch.Size(space).numel() or (way.pool is not None and found.windows is None):
        return found
    return replace(found, window=_window(conv, space))


def _window(conv: Conv, space: tuple[int, ...]) -> Window | None:
    plain = conv.padding_mode == "constant" and conv.stride == (1, 1) and conv.dilation == (1, 1)
    if not plain or tuple(conv.weight.shape[2:]) != (3, 3) or not all(0 <= side <= 2 for side in conv.padding):
        return None
    return Window(space[0], space[1], conv.padding[2], conv.padding[0])


def _linear_routes(net: SpikingNet, linear: Linear, read: str, spiking: Callable[[str], bool]) -> list[Route] | None:
    node = net[read]
    before = read
    if not spiking(read) and isinstance(node.op, Reshape) and len(node.op.shape) == 1:
        before = node.inputs[0]
    ways = _ways(net, before, spiking)
    if ways is None:
        return None
    channels, *rest = net.shapes[before]
    weight = linear.weight.view(linear.weight.shape[0], channels, -1).permute(1, 2, 0)  # [C, pixels, F]
    found = []
    for way in ways:
        own = weight[way.first_channel : way.first_channel + net.shapes[way.source][0]]
        found.append(_route(net, way, flat_pairs(weight.shape[1]), own, tuple(rest)))
    return _all(found)


def _same_route(net: SpikingNet, name: str, way: _Way) -> Route | None:
    space = net.shapes[name][1:]
    pixels = torch.Size(space).numel()
    found = _route(net, way, same_pairs(pixels), torch.ones(net.shapes[name][0], 1, dtype=torch.float32), space)
    return found if found is None else replace(found, skip=way.pool is None)


def _route(net: SpikingNet, way: _Way, pairs: Pairs, weight: Tensor, space: tuple[int, ...]) -> Route | None:
    """Put the pool and the scale of a way into the pairs and the weights of what reads it."""
    diagonal = weight.ndim == 2
    if way.scale is not None:
        weight = weight * way.scale.view(-1, *[1] * (weight.ndim - 1))
    grid = torch.Size(space).numel()
    if way.pool is None:
        return Route(way.source, pairs, grid, None, 1.0, weight, diagonal)
    pooled = pool_pairs(way.pool, net.shapes[way.source][1:])
    if pooled is None:
        return None
    found = disjoint_windows(pooled, grid)
    if found is not None and found[0].shape[1] < 1 << (1 << DIGIT_BITS) and len(weight) <= 1 << (16 - DIGIT_BITS):
        return Route(way.source, pairs, grid, found[0], found[1], weight, diagonal)
    before = torch.Size(net.shapes[way.source][1:]).numel()
    return Route(way.source, chain(pooled, pairs), before, None, 1.0, weight, diagonal)
