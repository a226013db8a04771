"""PreActResNet (He et al. 2016): BatchNorm - activation - convolution, twice a block.

The shortcut starts behind the block's first activation, so that in the spiking network only spikes travel between
layers.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ratenorm.models.layers import Activation, initialise_


class PreActBlock(nn.Module):
    """a = act(BN(x)); out = conv(act(BN(conv(a)))) + shortcut(a)."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: Activation) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.act1 = activation()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.act2 = activation()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        a = self.act1(self.bn1(x))
        out: Tensor = self.conv2(self.act2(self.bn2(self.conv1(a)))) + self.shortcut(a)
        return out


class PreActResNet(nn.Module):
    """A first convolution, stages of blocks, BatchNorm - activation - global average pooling - linear."""

    def __init__(
        self,
        blocks: Sequence[int],
        widths: Sequence[int],
        activation: Activation,
        num_classes: int = 10,
        channels: int = 3,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        stages: list[nn.Module] = []
        inputs = widths[0]
        for stage, (count, width) in enumerate(zip(blocks, widths, strict=True)):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(PreActBlock(inputs, width, stride, activation))
                inputs = width
        self.stages = nn.Sequential(*stages)
        self.bn = nn.BatchNorm2d(inputs)
        self.act = activation()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, num_classes)
        initialise_(self)

    def forward(self, x: Tensor) -> Tensor:
        out = self.pool(self.act(self.bn(self.stages(self.conv(x)))))
        logits: Tensor = self.classifier(out.flatten(1))
        return logits
