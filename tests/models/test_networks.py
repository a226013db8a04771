"""The paper's networks: shapes, injected activations, structure."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ratenorm import models
from ratenorm.core.rate_norm import RateNorm, rate_norm_layers
from ratenorm.errors import UsageError

GREY = ("cnn7", "alexnet")
ACTIVATIONS = {
    "cnn7": 3, "alexnet": 7, "vgg11": 10, "vgg13": 12, "vgg16": 15, "vgg19": 18,
    "preact_resnet18": 17, "preact_resnet34": 33, "preact_resnet20": 19,
}  # fmt: skip


def test_every_network_is_known_by_name() -> None:
    assert set(models.names()) == set(ACTIVATIONS)
    with pytest.raises(UsageError, match=r"'lenet' is not known. Known: cnn7"):
        models.build("lenet")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_structure_of_every_network(name: str) -> None:
    with torch.device("meta"):  # shapes without the arithmetic
        model = models.build(name, num_classes=7)
        side, channels = (28, 1) if name in GREY else (32, 3)
        assert model.eval()(torch.empty(2, channels, side, side)).shape == (2, 7)
    assert len(list(rate_norm_layers(model))) == ACTIVATIONS[name]
    assert not any(isinstance(m, nn.MaxPool2d | nn.ReLU) for m in model.modules())
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert all(m.bias is None for m in convolutions)


@pytest.mark.parametrize("name", ["cnn7", "preact_resnet20"])
def test_the_activation_is_injected(name: str) -> None:
    relu, rate = (models.build(name, activation=a, channels=2) for a in (nn.ReLU, RateNorm))
    assert not list(rate_norm_layers(relu))
    x = torch.rand(1, 2, 28 if name == "cnn7" else 32, 28 if name == "cnn7" else 32)
    assert relu.eval()(x).shape == rate.eval()(x).shape
    weights = {n: p.shape for n, p in rate.named_parameters()}
    assert weights == {n: p.shape for n, p in relu.named_parameters()}


def test_cnn7_has_the_layers_of_the_table() -> None:
    kinds = [type(m).__name__ for m in models.cnn7().modules() if not list(m.children())]
    block = ["Conv2d", "BatchNorm2d", "RateNorm", "AvgPool2d"]
    assert kinds == [*block * 3, "Linear"]


def test_the_shortcut_starts_behind_the_first_activation() -> None:
    """Only spikes travel between layers: with the second convolution silent, the block hands on act(BN(x))."""
    block = models.PreActBlock(3, 3, 1, nn.ReLU).eval()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(block(x), block.bn1(x).relu())
    strided = models.PreActBlock(3, 5, 2, nn.ReLU)
    assert isinstance(strided.shortcut, nn.Conv2d)
    assert strided(x).shape == (2, 5, 2, 2)


def test_weights_come_from_torchs_generator() -> None:
    states = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        states.append(models.cnn7().state_dict()["classifier.weight"])
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
    assert not models.cnn7().classifier.bias.any()
