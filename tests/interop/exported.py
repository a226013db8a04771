"""Small converted networks that NIR can express."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from builders import generator, randomise_batch_norm_
from random_networks import Recipe
from ratenorm.convert.convert import Conversion, convert


class Residual(nn.Module):
    """A residual network with a shortcut, a strided block and a global pool."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.down, self.skip = nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.Conv2d(8, 12, 1, stride=2)
        self.last = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        s = torch.relu(self.norm(self.stem(x)))
        y = torch.relu(s + self.b(torch.relu(self.a(s))))
        z = torch.relu(self.down(y) + self.skip(y))
        return self.last(nn.functional.adaptive_avg_pool2d(z, 1).flatten(1))


def converted(model: nn.Module, shape: tuple[int, ...], v0: float = 0.5, method: str = "max") -> Conversion:
    randomise_batch_norm_(model, 3)
    x = torch.rand(32, *shape, generator=generator(5))
    return convert(model.eval(), method, example=x[:1], calibration=x, v0=v0)


def plain_cnn() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 4, 5),
    )  # fmt: skip


SAYABLE = (
    "conv", "strided", "dilated", "grouped", "pre_batch_norm", "residual", "batch_norm_add", "scale", "avg_pool",
    "amplitudes",
)  # fmt: skip


def sayable(recipe: Recipe) -> Recipe:
    """The recipe with blocks that NIR can mostly say."""
    return replace(recipe, blocks=tuple(b if b in SAYABLE else SAYABLE[i] for i, b in enumerate(recipe.blocks)))
