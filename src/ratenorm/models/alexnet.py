"""AlexNet for 28x28 images (the paper's Table 1): five convolutions with BatchNorm, three linear layers."""

from __future__ import annotations

from torch import Tensor, nn

from ratenorm.models.layers import Activation, conv_bn_act, initialise_


class AlexNet(nn.Module):
    """The widths of AlexNet (64-192-384-256-256) with 3x3 kernels and average pooling, as 28x28 images need."""

    def __init__(self, activation: Activation, num_classes: int = 10, channels: int = 1, hidden: int = 512) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_bn_act(channels, 64, activation),
            nn.AvgPool2d(2),  # 28 -> 14
            conv_bn_act(64, 192, activation),
            nn.AvgPool2d(2),  # 14 -> 7
            conv_bn_act(192, 384, activation),
            conv_bn_act(384, 256, activation),
            conv_bn_act(256, 256, activation),
            nn.AvgPool2d(2),  # 7 -> 3
        )
        self.classifier = nn.Sequential(
            nn.Linear(256 * 9, hidden),
            activation(),
            nn.Linear(hidden, hidden),
            activation(),
            nn.Linear(hidden, num_classes),
        )
        initialise_(self)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(x).flatten(1))
        return out
