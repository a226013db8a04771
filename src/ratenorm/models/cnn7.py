"""CNN-7 of the paper's Table 1: 32C3-P2-32C3-P2-32C3-P2-FC10, seven layers with the pools counted."""

from __future__ import annotations

from torch import Tensor, nn

from ratenorm.models.layers import Activation, conv_bn_act, initialise_


class CNN7(nn.Module):
    """Three 3x3 convolutions of 32 channels with BatchNorm, each followed by 2x2 average pooling; one linear layer."""

    def __init__(self, activation: Activation, num_classes: int = 10, channels: int = 1, width: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_bn_act(channels, width, activation),
            nn.AvgPool2d(2),  # 28 -> 14
            conv_bn_act(width, width, activation),
            nn.AvgPool2d(2),  # 14 -> 7
            conv_bn_act(width, width, activation),
            nn.AvgPool2d(2),  # 7 -> 3
        )
        self.classifier = nn.Linear(width * 9, num_classes)
        initialise_(self)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(x).flatten(1))
        return out
