"""Folding never changes the function; BatchNorm disappears wherever it can."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from builders import randomise_batch_norm_
from random_networks import Recipe, recipes
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.graph.net import run
from ratenorm.graph.ops import Affine


class AfterAdd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.bn = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.a(x) + self.b(x)))


class AfterIdentitySum(nn.Module):
    """One summand has no weights that could take the scale."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.bn = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(x)
        return F.relu(self.bn(self.a(y) + y))


class BeforeConcat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn, self.conv, self.last = nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1), nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        scaled = F.relu(x) * torch.tensor([2.0, 0.5]).view(2, 1, 1)
        return F.relu(self.last(torch.cat([scaled, F.relu(self.conv(x)), scaled], 1)))


class ScalePastShapes(nn.Module):
    """A scale a channel, then reshaping, slicing and pooling, before weights that can take it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4 * 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(x) * torch.tensor([2.0, 0.25]).view(2, 1, 1)
        y = F.avg_pool2d(y, 2).permute(0, 2, 3, 1)[:, :2, :2]
        return self.linear(F.relu(y.flatten(1)))


class LinearOverSequence(nn.Module):
    """The channels of BatchNorm are not the features of the linear layer: nothing may be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bn = nn.Linear(4, 4), nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.linear(self.bn(x))))


IMAGE, SEQUENCE = (2, 6, 6), (5, 4)
FULLY_FOLDED = {
    "after a convolution": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()), IMAGE),
    "after a convolution without bias": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, bias=False, groups=2), nn.BatchNorm2d(4), nn.ReLU()),
        IMAGE,
    ),
    "twice after a convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False), nn.ReLU()),
        IMAGE,
    ),
    "after Conv1d": (lambda: nn.Sequential(nn.Conv1d(5, 3, 3, padding=1), nn.BatchNorm1d(3), nn.ReLU()), SEQUENCE),
    "after a linear layer": (lambda: nn.Sequential(nn.Linear(7, 3), nn.BatchNorm1d(3), nn.ReLU()), (7,)),
    "before a linear layer": (lambda: nn.Sequential(nn.BatchNorm1d(7), nn.Linear(7, 3), nn.ReLU()), (7,)),
    "before an unpadded convolution": (
        lambda: nn.Sequential(nn.BatchNorm2d(2), nn.Conv2d(2, 4, 3, groups=2), nn.ReLU()),
        IMAGE,
    ),
    "before a convolution with reflected borders": (
        lambda: nn.Sequential(nn.BatchNorm2d(2), nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.ReLU()),
        IMAGE,
    ),
    "after an addition": (AfterAdd, IMAGE),
}  # fmt: skip
PARTLY_FOLDED = {
    "before a zero-padded convolution": (
        lambda: nn.Sequential(nn.BatchNorm2d(2), nn.Conv2d(2, 3, 3, padding=1), nn.ReLU()),
        IMAGE,
    ),
    "after an addition with a skip": (AfterIdentitySum, IMAGE),
    "over a sequence": (LinearOverSequence, SEQUENCE),
}


def check(model: nn.Module, x: Tensor) -> int:
    """Fold, compare with torch, and return how many scales are left over."""
    graph, _ = lower(model, x[:1])
    folded = fold(graph)
    with torch.no_grad():
        expected, found = model(x.clone()), run(folded, x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    assert folded.output in folded.shapes
    return sum(isinstance(node.op, Affine) for node in folded)


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", FULLY_FOLDED)
def test_batch_norm_disappears(name: str, seed: int) -> None:
    build, shape = FULLY_FOLDED[name]
    torch.manual_seed(seed)
    assert check(randomise_batch_norm_(build(), seed).eval(), torch.randn(4, *shape)) == 0


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("name", PARTLY_FOLDED)
def test_batch_norm_that_no_weight_can_take_stays_and_is_right(name: str, seed: int) -> None:
    build, shape = PARTLY_FOLDED[name]
    torch.manual_seed(seed)
    assert check(randomise_batch_norm_(build(), seed).eval(), torch.randn(4, *shape)) > 0


@pytest.mark.parametrize("build", [BeforeConcat, ScalePastShapes])
def test_scales_move_towards_weights(build: type[nn.Module]) -> None:
    model = build().eval()
    x = torch.randn(4, 2, 4, 4)
    graph, _ = lower(model, x[:1])
    check(model, x)
    assert sum(isinstance(n.op, Affine) for n in fold(graph)) <= sum(isinstance(n.op, Affine) for n in graph)


@settings(max_examples=40)
@given(recipes(most=4))
def test_folding_keeps_the_function_of_random_networks(recipe: Recipe) -> None:
    check(recipe.build(), recipe.images(4))


@settings(max_examples=20)
@given(recipes())
def test_folding_twice_changes_nothing_more(recipe: Recipe) -> None:
    once = fold(lower(recipe.build(), recipe.images(1))[0])
    assert fold(once).same_as(once)
