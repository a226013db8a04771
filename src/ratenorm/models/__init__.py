"""The networks of the paper. The activation is injected: `RateNorm`, `nn.ReLU`, or any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ratenorm.core.rate_norm import RateNorm
from ratenorm.errors import UsageError
from ratenorm.models.alexnet import AlexNet
from ratenorm.models.cnn7 import CNN7
from ratenorm.models.layers import Activation
from ratenorm.models.preact_resnet import PreActBlock, PreActResNet
from ratenorm.models.vgg import VGG

__all__ = [
    "CNN7",
    "VGG",
    "AlexNet",
    "PreActBlock",
    "PreActResNet",
    "alexnet",
    "build",
    "cnn7",
    "names",
    "preact_resnet18",
    "preact_resnet20",
    "preact_resnet34",
    "vgg11",
    "vgg13",
    "vgg16",
    "vgg19",
]


def cnn7(activation: Activation = RateNorm, num_classes: int = 10, channels: int = 1) -> CNN7:
    return CNN7(activation, num_classes, channels)


def alexnet(activation: Activation = RateNorm, num_classes: int = 10, channels: int = 1) -> AlexNet:
    return AlexNet(activation, num_classes, channels)


def vgg11(activation: Activation = RateNorm, num_classes: int = 10, channels: int = 3) -> VGG:
    return VGG(11, activation, num_classes, channels)


def vgg13(activation: Activation = RateNorm, num_classes: int = 10, channels: int = 3) -> VGG:
    return VGG(13, activation, num_classes, channels)


def vgg16(activation: Activation = RateNorm, num_classes: int = 10, channels: int = 3) -> VGG:
    return VGG(16, activation, num_classes, channels)


def vgg19(activation: Activation = RateNorm, num_classes: int = 10, channels: int = 3) -> VGG:
    return VGG(19, activation, num_classes, channels)


def preact_resnet18(activation: Activation = RateNorm, num_classes: int = 10, channels: int = 3) -> PreActResNet:
    return PreActResNet([2, 2, 2, 2], [64, 128, 256, 512], activation, num_classes, channels)


def preact_resnet34(activation: Activation = RateNorm, num_classes: int = 10, channels: int = 3) -> PreActResNet:
    return PreActResNet([3, 4, 6, 3], [64, 128, 256, 512], activation, num_classes, channels)


def preact_resnet20(activation: Activation = RateNorm, num_classes: int = 10, channels: int = 3) -> PreActResNet:
    """The thin ResNet-20 for CIFAR (16-32-64 channels) in pre-activation form."""
    return PreActResNet([3, 3, 3], [16, 32, 64], activation, num_classes, channels)


_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    f.__name__: f
    for f in (cnn7, alexnet, vgg11, vgg13, vgg16, vgg19, preact_resnet18, preact_resnet20, preact_resnet34)
}


def names() -> tuple[str, ...]:
    """The names `build` knows."""
    return tuple(_BUILDERS)


def build(name: str, **options: Any) -> nn.Module:
    """The network called `name`; the options are those of its function."""
    if name not in _BUILDERS:
        raise UsageError(f"Building a network: {name!r} is not known. Known: {', '.join(_BUILDERS)}.")
    return _BUILDERS[name](**options)
