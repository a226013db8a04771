"""Random small spiking networks over every operation of the graph, with numbers whose sums are exact in any order.

Weights are multiples of 1/8, thresholds and scales powers of two, pools have windows of 1, 2, 4 or 16: two engines that
follow the equations must agree bit for bit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ratenorm.graph.net import INPUT, Node, SpikingNet, run
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
    Op,
    Permute,
    Reshape,
    Slice,
    Upsample,
)


@dataclass
class _Growing:
    """A network under construction; `values` are the nodes to go on from."""

    rng: random.Random
    nodes: list[Node] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def put(self, op: Op, *inputs: str) -> str:
        name = INPUT if isinstance(op, Input) else f"{op.kind}{len(self.nodes)}"
        self.nodes.append(Node(name, op, inputs))
        if inputs:
            values = [torch.zeros(1, *self.shapes[i]) for i in inputs]
            self.shapes[name] = tuple(op(*values).shape[1:])
        return name

    def numbers(self, *shape: int, low: int = -6, high: int = 8) -> Tensor:
        return torch.tensor([self.rng.randint(low, high) / 8 for _ in range(torch.Size(shape).numel())]).view(shape)

    def powers(self, *shape: int) -> Tensor:
        return torch.tensor([self.rng.choice((0.5, 1.0, 2.0)) for _ in range(torch.Size(shape).numel())]).view(shape)

    def fire(self, name: str) -> str:
        shape = self.shapes[name]
        channel = (shape[0], *[1] * (len(shape) - 1))
        threshold = self.powers(*self.rng.choice(((1,), channel, shape)))
        start = self.rng.choice((threshold * 0.5, torch.zeros(1), self.numbers(*shape)))
        step_bias = self.rng.choice((None, None, None, channel, shape, (1,)))
        rows = self.rng.choice((1, 3, 40))
        bias = None if step_bias is None else self.numbers(rows, *step_bias)
        return self.put(Fire(threshold, start, bias), name)

    def affine(self, name: str) -> str:
        shape = self.shapes[name]
        channel = (shape[0], *[1] * (len(shape) - 1))
        scale = self.rng.choice((None, self.powers(1), self.powers(*channel), self.powers(*shape)))
        shift = self.rng.choice((None, self.numbers(*channel), self.numbers(*shape)))
        return self.put(Affine(scale, shift), name)

    def conv(self, name: str, outputs: int | None = None) -> str:
        channels, *space = self.shapes[name]
        pick = self.rng.choice
        kernel = pick((1, 2, 3, 3, 3))
        dilation = pick((1, 1, 2)) if min(space) > 4 else 1
        padding = tuple(pick((0, 1, kernel // 2)) for _ in range(2 * len(space)))
        mode = pick(("constant", "constant", "reflect", "replicate", "circular"))
        if dilation * (kernel - 1) + 1 > min(space):
            kernel = 1
        if max(padding) >= min(space):  # a picture cannot be mirrored further than it reaches
            mode = "constant"
        groups = pick((1, 1, 1, channels, 2 if channels % 2 == 0 else 1))
        width = outputs or (channels if groups > 1 else pick((2, 8, 33, 64)))
        groups = groups if width % groups == 0 else 1
        weight = self.numbers(width, channels // groups, *[kernel] * len(space))
        bias = pick((None, self.numbers(width)))
        stride = tuple(pick((1, 1, 2)) for _ in space)
        return self.put(Conv(weight, bias, stride, padding, (dilation,) * len(space), groups, mode), name)

    def pool(self, name: str) -> str:
        _, *space = self.shapes[name]
        if min(space) < 2:
            return name
        two, ones, pick = (2,) * len(space), (1,) * len(space), self.rng.choice
        zeros = (0,) * len(space)
        return self.put(
            pick(
                (
                    AvgPool(two, two, zeros),
                    AvgPool(two, ones, zeros),
                    AvgPool(two, two, ones, count_include_pad=False),
                    AvgPool(two, two, zeros, ceil_mode=True),
                    AdaptiveAvgPool(ones if len(space) == 1 else (1, 2)),
                )
            )
            if all(s in (2, 4, 8) for s in space)
            else AvgPool(two, two, zeros),
            name,
        )

    def max_pool(self, name: str) -> str:
        _, *space = self.shapes[name]
        if min(space) < 3:
            return name
        n = len(space)
        return self.put(
            self.rng.choice(
                (
                    MaxPool((2,) * n, (2,) * n, (0,) * n, (1,) * n),
                    MaxPool((3,) * n, (2,) * n, (1,) * n, (1,) * n, True),
                )
            ),
            name,
        )

    def move(self, name: str) -> str:
        channels, *space = self.shapes[name]
        pick = self.rng.choice
        options: list[Op] = [
            Upsample(tuple(s * 2 for s in space)),
            Slice(1, channels // 2, channels),
            Slice(2, 0, max(1, space[0] - 1)),
            Reshape((channels * space[0], *space[1:])) if len(space) == 2 else Permute((0, 2, 1)),
        ]
        if len(space) == 2:
            options.append(Permute(pick(((0, 1, 3, 2), (0, 3, 1, 2)))))
        return self.put(pick(options), name)


def random_net(seed: int) -> SpikingNet:
    """A network of two to four populations in a random graph, one or two dimensions of space, a linear readout."""
    rng = random.Random(seed)
    grown = _Growing(rng)
    shape = (rng.randint(1, 3), *[rng.choice((4, 5, 8))] * rng.choice((1, 2, 2)))
    grown.shapes[INPUT] = shape
    grown.put(Input())
    here = grown.fire(grown.conv(INPUT))
    for _ in range(rng.randint(1, 3)):
        here = _stretch(grown, here)
    if rng.random() < 0.3:
        here = grown.affine(here)
    flat = grown.put(Reshape((torch.Size(grown.shapes[here]).numel(),)), here)
    size = grown.shapes[flat][0]
    if rng.random() < 0.3:
        hidden = rng.choice((5, 130))
        flat = grown.fire(grown.put(Linear(grown.numbers(hidden, size), grown.numbers(hidden)), flat))
        size = hidden
    out = flat if rng.random() < 0.1 else grown.put(Linear(grown.numbers(3, size), grown.numbers(3)), flat)
    return SpikingNet(tuple(grown.nodes), out, shape)


def _stretch(grown: _Growing, here: str) -> str:
    """From one population to the next."""
    rng = grown.rng
    for change in rng.sample((grown.pool, grown.max_pool, grown.affine, grown.move), rng.randint(0, 2)):
        here = change(here)
    if len(grown.shapes[here]) < 2:
        return here
    kind = rng.choice(("plain", "plain", "residual", "block", "block", "shortcut", "concat", "direct", "twice"))
    if kind == "direct":
        return grown.fire(grown.affine(here))
    if kind == "concat":
        other = grown.fire(grown.put(Affine(grown.powers(1), grown.numbers(1)), here))
        both = grown.put(Concat(1), here, other, grown.put(Affine(grown.powers(1)), here))
        return grown.fire(grown.conv(both))
    if kind == "block":
        channels, *space = grown.shapes[here]
        weight = grown.numbers(channels, channels, *[3] * len(space))
        same = Conv(weight, None, (1,) * len(space), (1,) * 2 * len(space), (1,) * len(space))
        skip = rng.choice((here, grown.put(Affine(grown.powers(channels, *[1] * len(space))), here)))
        return grown.fire(grown.put(Add(), grown.put(same, here), skip))
    first = grown.conv(here)
    if kind == "twice":
        return grown.fire(grown.conv(first))
    if kind == "residual" and grown.shapes[first] == grown.shapes[here]:
        return grown.fire(grown.put(Add(), first, grown.affine(here), here))
    if kind == "shortcut":
        hidden = grown.fire(first)
        same = Conv(
            grown.numbers(grown.shapes[here][0], grown.shapes[hidden][0], *[1] * (len(grown.shapes[here]) - 1)), None
        )
        if grown.shapes[hidden][1:] == grown.shapes[here][1:] and len(grown.shapes[here]) == 3:
            return grown.fire(grown.put(Add(), grown.put(same, hidden), here))
        return hidden
    return grown.fire(first)


def random_images(net: SpikingNet, images: int, seed: int) -> Tensor:
    """Dyadic images that make the network run without overflow; checks that it runs at all."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-8, 17, (images, *net.input_shape), generator=generator).float() / 8
    run(net, x)
    return x
