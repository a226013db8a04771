"""VGG-11/13/16/19 for 32x32 images: convolutions with BatchNorm, average pooling, three linear layers."""

from __future__ import annotations

from torch import Tensor, nn

from ratenorm.models.layers import Activation, conv_bn_act, initialise_

# Channels of each convolution; "P" halves the resolution. Five pools take 32x32 to 1x1.
PLANS: dict[int, list[int | str]] = {
    11: [64, "P", 128, "P", 256, 256, "P", 512, 512, "P", 512, 512, "P"],
    13: [64, 64, "P", 128, 128, "P", 256, 256, "P", 512, 512, "P", 512, 512, "P"],
    16: [64, 64, "P", 128, 128, "P", 256, 256, 256, "P", 512, 512, 512, "P", 512, 512, 512, "P"],
    19: [64, 64, "P", 128, 128, "P", *[256] * 4, "P", *[512] * 4, "P", *[512] * 4, "P"],
}


class VGG(nn.Module):
    """VGG of the given depth. `hidden` is the width of the linear layers: 512 here, 4096 in the original."""

    def __init__(
        self, depth: int, activation: Activation, num_classes: int = 10, channels: int = 3, hidden: int = 512
    ) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        width = channels
        for step in PLANS[depth]:
            if isinstance(step, int):
                blocks.append(conv_bn_act(width, step, activation))
                width = step
            else:
                blocks.append(nn.AvgPool2d(2))
        self.features = nn.Sequential(*blocks)
        self.classifier = nn.Sequential(
            nn.Linear(512, hidden),
            activation(),
            nn.Linear(hidden, hidden),
            activation(),
            nn.Linear(hidden, num_classes),
        )
        initialise_(self)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(x).flatten(1))
        return out
