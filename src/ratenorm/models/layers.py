"""What the networks share: the injected activation and a convolution with its BatchNorm."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

Activation = Callable[[], nn.Module]


def conv_bn_act(inputs: int, outputs: int, activation: Activation, stride: int = 1) -> nn.Sequential:
    """3x3 convolution, BatchNorm, activation. No bias: BatchNorm has one."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        activation(),
    )


def initialise_(model: nn.Module) -> None:
    """Kaiming's initialisation for what a rectifier follows, drawn from torch's global generator."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(
                module.weight, mode="fan_out" if isinstance(module, nn.Conv2d) else "fan_in", nonlinearity="relu"
            )
            if module.bias is not None:
                nn.init.zeros_(module.bias)
