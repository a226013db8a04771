"""Random networks from every supported operation, for hypothesis.

A network is a list of blocks, each drawn with its settings; weights come from a seed, BatchNorm statistics are random.
`Recipe.build` gives the module; its forward pass is ordinary torch, so it is traced like a user's network. Every
activation is an `Act`, so that `clipped_ann` can cut its output: the clipped ANN, computed by torch alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from builders import generator, randomise_batch_norm_
from ratenorm.core.rate_norm import RateNorm

CHANNELS, SIDE = 4, 6
BLOCKS = (
    "conv", "strided", "dilated", "grouped", "reflect", "circular", "pre_batch_norm", "residual", "batch_norm_add",
    "concat", "chunk", "split", "shuffle", "upsample", "scale", "dropout", "avg_pool", "adaptive_pool", "max_pool",
    "max_pool_before", "amplitudes",
)  # fmt: skip
ACTIVATIONS = (
    "module", "F.relu", "torch.relu", "x.relu()", "in place", "relu_", "relu6", "F.relu6", "clamp", "x.clamp",
    "clamp_min", "hardtanh", "rate_norm", "rate_norm_activation",
)  # fmt: skip
ENDS = ("flatten", "mean", "global_pool")


def _rate_norm(output: str) -> RateNorm:
    layer = RateNorm(output=output)
    layer.running_max.fill_(1.5)
    return layer


class Act(nn.Module):
    """One activation in one of its spellings."""

    def __init__(self, spelling: str) -> None:
        super().__init__()
        self.spelling = spelling
        self.inner: nn.Module = {
            "module": nn.ReLU,
            "in place": lambda: nn.ReLU(inplace=True),
            "relu6": nn.ReLU6,
            "hardtanh": lambda: nn.Hardtanh(0.0, 2.0),
            "rate_norm": lambda: _rate_norm("rate"),
            "rate_norm_activation": lambda: _rate_norm("activation"),
        }.get(spelling, nn.Identity)()

    def forward(self, x: Tensor) -> Tensor:
        by_function = {
            "F.relu": lambda: F.relu(x),
            "torch.relu": lambda: torch.relu(x),
            "x.relu()": lambda: x.relu(),
            "relu_": lambda: x.relu_(),
            "F.relu6": lambda: F.relu6(x),
            "clamp": lambda: torch.clamp(x, 0.0, 1.25),
            "x.clamp": lambda: x.clamp(min=0.0, max=3.0),
            "clamp_min": lambda: x.clamp_min(0.0),
        }
        return by_function[self.spelling]() if self.spelling in by_function else self.inner(x)


class Block(nn.Module):
    """One block; `kind` says which. `channels` and `side` are those of its output."""

    def __init__(
        self, kind: str, channels: int, side: int, spelling: str, batch_norm: bool, dice: random.Random
    ) -> None:
        super().__init__()
        self.kind, self.channels, self.side = kind, channels, side
        self.poolable = side >= 2
        c = channels
        bn = nn.BatchNorm2d if batch_norm else nn.Identity
        self.act = Act(spelling)
        self.norm: nn.Module = bn(c)
        self.conv: nn.Module = nn.Conv2d(c, c, 3, padding=1)
        if kind == "strided" and side >= 3:
            self.conv = nn.Conv2d(c, c, 3, stride=2, padding=dice.choice([0, 1]), bias=not batch_norm)
            self.side = (side + 2 * self.conv.padding[0] - 3) // 2 + 1
        elif kind == "dilated":
            self.conv = nn.Conv2d(c, c, 3, padding="same", dilation=2)
        elif kind == "grouped":
            self.conv = nn.Conv2d(c, c, (3, 1), padding=(1, 0), groups=dice.choice([2, c]))
        elif kind in ("reflect", "circular") and side >= 2:
            self.conv = nn.Conv2d(c, c, 3, padding=1, padding_mode=kind)
        elif kind == "pre_batch_norm":
            self.before = nn.BatchNorm2d(c)
            self.conv = nn.Conv2d(c, c, dice.choice([1, 3]), padding=dice.choice([0, 1]) if side >= 3 else 1)
            self.side = side + 2 * self.conv.padding[0] - self.conv.kernel_size[0] + 1
        elif kind == "concat":
            self.channels = 2 * c
        elif kind == "amplitudes":
            self.other, self.second = nn.Conv2d(c, c, 1), Act("F.relu")
        elif kind in ("chunk", "split"):
            self.conv = nn.Conv2d(c // 2, c // 2, 3, padding=1)
            self.norm = bn(c // 2)
        elif kind == "upsample":
            self.side = 2 * side
        elif kind in ("avg_pool", "max_pool", "max_pool_before") and side >= 2:
            self.side = (side - 2) // 2 + 1
        elif kind == "adaptive_pool":
            self.side = max(1, side - 1)

    def forward(self, x: Tensor) -> Tensor:
        kind = self.kind
        if kind == "pre_batch_norm":
            x = self.before(x)
        if kind == "residual":
            return x + self.act(self.norm(self.conv(x)))
        if kind == "batch_norm_add":
            return self.act(self.norm(self.conv(x) + x))
        if kind == "concat":
            return torch.cat([x, self.act(self.norm(self.conv(x)))], dim=1)
        if kind == "amplitudes":  # two populations of different amplitude meet in a sum
            return self.act(self.conv(x)) + 3.0 * self.second(self.other(x))
        if kind in ("chunk", "split"):
            a, b = x.chunk(2, dim=1) if kind == "chunk" else torch.split(x, self.channels // 2, dim=1)
            return torch.cat((b, self.act(self.norm(self.conv(a)))), 1)
        if kind == "max_pool_before":
            y = self.norm(self.conv(x))
            return self.act(F.max_pool2d(y, 2) if self.poolable else y)
        y = self.act(self.norm(self.conv(x)))
        return self.behind(y)

    def behind(self, y: Tensor) -> Tensor:
        kind = self.kind
        if kind == "shuffle":
            b, c, h, w = y.size()
            return y.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        if kind == "upsample":
            return F.interpolate(y, scale_factor=2)
        if kind == "scale":
            return (y * 0.75 - 0.1) / 1.25
        if kind == "dropout":
            return F.dropout(y, 0.5, training=self.training)
        if kind == "avg_pool" and self.poolable:
            return F.avg_pool2d(y, 2)
        if kind == "max_pool" and self.poolable:
            return F.max_pool2d(y, 2)
        if kind == "adaptive_pool":
            return F.adaptive_avg_pool2d(y, self.side)
        return y


class RandomNet(nn.Module):
    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        torch.manual_seed(recipe.seed)
        dice = random.Random(recipe.seed)
        channels, side = CHANNELS, SIDE
        self.first = nn.Conv2d(2, channels, 3, padding=1)
        self.first_act = Act(recipe.spellings[-1])
        blocks = []
        for kind, spelling in zip(recipe.blocks, recipe.spellings):
            block = Block(kind, channels, side, spelling, recipe.batch_norm, dice)
            channels, side = block.channels, block.side
            blocks.append(block)
        self.blocks = nn.Sequential(*blocks)
        self.end = recipe.end
        self.readout = nn.Linear(channels * side * side if recipe.end == "flatten" else channels, 5)
        randomise_batch_norm_(self, recipe.seed)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(self.first_act(self.first(x)))
        if self.end == "mean":
            return self.readout(y.mean((2, 3)))
        if self.end == "global_pool":
            y = F.adaptive_avg_pool2d(y, 1)
        return self.readout(torch.flatten(y, 1))


@dataclass(frozen=True)
class Recipe:
    """What a random network is made of. Its repr is enough to build it again."""

    blocks: tuple[str, ...]
    spellings: tuple[str, ...]
    batch_norm: bool
    end: str
    seed: int

    def build(self) -> RandomNet:
        return RandomNet(self)

    def images(self, count: int = 12) -> Tensor:
        return torch.rand(count, 2, SIDE, SIDE, generator=generator(self.seed + 1))


@st.composite
def recipes(draw: st.DrawFn, most: int = 3) -> Recipe:
    blocks = tuple(draw(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=most)))
    spellings = tuple(draw(st.sampled_from(ACTIVATIONS)) for _ in range(len(blocks) + 1))
    return Recipe(blocks, spellings, draw(st.booleans()), draw(st.sampled_from(ENDS)), draw(st.integers(0, 10**6)))


def clipped_ann(model: nn.Module, x: Tensor, amplitudes: list[Tensor]) -> Tensor:
    """The network with the output of its k-th activation (in order of calls) cut at `amplitudes[k]`, by torch alone."""
    waiting = list(amplitudes)

    def cut(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return torch.minimum(output, waiting.pop(0))

    handles = [m.register_forward_hook(cut) for m in model.modules() if isinstance(m, Act)]
    try:
        with torch.no_grad():
            output: Tensor = model(x)
    finally:
        for handle in handles:
            handle.remove()
    assert not waiting, "a site of the conversion is no activation of the network"
    return output
