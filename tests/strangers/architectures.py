"""Networks as strangers write them: what VGG, ResNet, DenseNet, DPN, Inception, MobileNet and others are made of.

Each takes [3, 12, 12] unless `SHAPES` says otherwise. Every activation and every max-pool is a module that is called
once, so that the plain reference can put a neuron in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES = 5


def conv_bn(inputs: int, outputs: int, kernel: Any = 3, **settings: Any) -> nn.Sequential:
    settings.setdefault("padding", kernel // 2 if isinstance(kernel, int) else tuple(k // 2 for k in kernel))
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, bias=False, **settings), nn.BatchNorm2d(outputs))


def conv_relu(inputs: int, outputs: int, kernel: Any = 3, **settings: Any) -> nn.Sequential:
    return nn.Sequential(*conv_bn(inputs, outputs, kernel, **settings), nn.ReLU())


def head(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def pre(inputs: int, outputs: int, kernel: int = 3, **settings: Any) -> nn.Sequential:
    """BatchNorm, activation, convolution."""
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False, **settings)
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), conv)


class Residual(nn.Module):
    """A trunk, a shortcut, a sum, and an activation after it."""

    def __init__(self, trunk: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None) -> None:
        super().__init__()
        self.trunk, self.shortcut = trunk, nn.Identity() if shortcut is None else shortcut
        self.after = nn.ReLU() if after is None else after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.trunk(x) + self.shortcut(x))


class Branches(nn.Module):
    """Several branches, one after the other in the channels; with `keep`, behind the input itself."""

    def __init__(self, *branches: nn.Module, keep: bool = False) -> None:
        super().__init__()
        self.branches, self.keep = nn.ModuleList(branches), keep

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x] * self.keep + [branch(x) for branch in self.branches], 1)


def plain(channels: int = 24) -> nn.Module:
    return nn.Sequential(
        conv_relu(3, channels), nn.AvgPool2d(2), conv_relu(channels, channels), nn.AvgPool2d(2), head(channels)
    )


def vgg() -> nn.Module:
    return nn.Sequential(
        conv_relu(3, 16), conv_relu(16, 32), nn.MaxPool2d(2), conv_relu(32, 32), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(288, 40), nn.ReLU(), nn.Dropout(), nn.Linear(40, CLASSES),
    )  # fmt: skip


def resnet() -> nn.Module:
    def block(i: int, o: int, s: int) -> nn.Module:
        trunk = nn.Sequential(conv_relu(i, o, stride=s), conv_bn(o, o))
        return Residual(trunk, None if i == o and s == 1 else conv_bn(i, o, 1, stride=s))

    return nn.Sequential(conv_relu(3, 16), block(16, 16, 1), block(16, 32, 2), block(32, 32, 1), head(32))


def bottleneck() -> nn.Module:
    def block(i: int, o: int, s: int, groups: int = 1) -> nn.Module:
        trunk = nn.Sequential(conv_relu(i, 16, 1), conv_relu(16, 16, stride=s, groups=groups), conv_bn(16, o, 1))
        return Residual(trunk, conv_bn(i, o, 1, stride=s))

    return nn.Sequential(conv_relu(3, 16), block(16, 40, 1), block(40, 40, 2, 4), head(40))


class PreActBlock(nn.Module):
    """The shortcut starts before the first activation, or behind it where the shape changes."""

    def __init__(self, i: int, o: int, s: int) -> None:
        super().__init__()
        self.norm, self.act = nn.BatchNorm2d(i), nn.ReLU()
        self.first, self.second = nn.Conv2d(i, o, 3, s, 1, bias=False), pre(o, o)
        self.shortcut = nn.Conv2d(i, o, 1, s, bias=False) if i != o or s != 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.norm(x))
        return self.second(self.first(y)) + (x if self.shortcut is None else self.shortcut(y))


def preact_resnet() -> nn.Module:
    blocks = [PreActBlock(16, 16, 1), PreActBlock(16, 32, 2), PreActBlock(32, 32, 1)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), *blocks, nn.BatchNorm2d(32), nn.ReLU(), head(32))


def preact_bottleneck() -> nn.Module:
    def block(i: int, o: int) -> nn.Module:
        return Residual(nn.Sequential(pre(i, 12, 1), pre(12, 12), pre(12, o, 1)), pre(i, o, 1), nn.Identity())

    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), block(16, 24), block(24, 24), nn.ReLU(), head(24))


def densenet() -> nn.Module:
    def block(channels: int, growth: int = 8) -> list[nn.Module]:
        layers = [nn.Sequential(pre(channels + k * growth, 16, 1), pre(16, growth)) for k in range(3)]
        return [Branches(layer, keep=True) for layer in layers]

    transition = nn.Sequential(pre(40, 20, 1), nn.AvgPool2d(2))
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), *block(16), transition, *block(20),
        nn.BatchNorm2d(44), nn.ReLU(), head(44),
    )  # fmt: skip


class DualPath(nn.Module):
    """A residual part that is added to, and a dense part that grows."""

    def __init__(self, inputs: int, shared: int, grown: int, project: bool) -> None:
        super().__init__()
        self.shared = shared
        self.trunk = nn.Sequential(
            conv_relu(inputs, 16, 1), conv_relu(16, 16, groups=4), conv_bn(16, shared + grown, 1)
        )
        self.shortcut = conv_bn(inputs, shared + grown, 1) if project else nn.Identity()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        a, b, d = self.shortcut(x), self.trunk(x), self.shared
        return self.act(torch.cat([a[:, :d] + b[:, :d], a[:, d:], b[:, d:]], 1))


def dual_path() -> nn.Module:
    return nn.Sequential(conv_relu(3, 16), DualPath(16, 24, 8, True), DualPath(40, 24, 8, False), head(48))


def inception() -> nn.Module:
    mixed = Branches(
        conv_relu(16, 8, 1), nn.Sequential(conv_relu(16, 8, 1), conv_relu(8, 12)),
        nn.Sequential(conv_relu(16, 8, 1), conv_relu(8, 8, (1, 5)), conv_relu(8, 8, (5, 1))),
        nn.Sequential(nn.AvgPool2d(3, 1, 1), conv_relu(16, 8, 1)),
    )  # fmt: skip
    reduced = Branches(conv_relu(36, 16, stride=2, padding=0), nn.MaxPool2d(3, 2))
    return nn.Sequential(conv_relu(3, 16), mixed, reduced, conv_relu(52, 24, 1), head(24))


def googlenet() -> nn.Module:
    mixed = Branches(
        conv_relu(20, 8, 1), nn.Sequential(conv_relu(20, 6, 1), conv_relu(6, 8, 5)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_relu(20, 8, 1)),
    )  # fmt: skip
    return nn.Sequential(conv_relu(3, 20, 5), nn.MaxPool2d(3, 2, ceil_mode=True), mixed, head(24))


def separable(i: int, o: int, stride: int = 1) -> nn.Sequential:
    """Depthwise, then pointwise, with nothing between."""
    depthwise = nn.Conv2d(i, i, 3, stride, 1, groups=i, bias=False)
    return nn.Sequential(depthwise, nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o))


def xception() -> nn.Module:
    trunk = nn.Sequential(separable(16, 24), nn.ReLU(), separable(24, 24), nn.MaxPool2d(3, 2, 1))
    middle = nn.Sequential(nn.ReLU(), separable(24, 24), nn.ReLU(), separable(24, 24))
    return nn.Sequential(
        conv_relu(3, 16), Residual(trunk, conv_bn(16, 24, 1, stride=2), nn.Identity()),
        Residual(middle, None, nn.Identity()), separable(24, 32), nn.ReLU(), head(32),
    )  # fmt: skip


def mobilenet() -> nn.Module:
    def block(i: int, o: int, s: int) -> nn.Sequential:
        return nn.Sequential(*conv_relu(i, i, stride=s, groups=i), *conv_relu(i, o, 1))

    return nn.Sequential(conv_relu(3, 16, stride=2), block(16, 32, 1), block(32, 40, 2), head(40))


def inverted_residual() -> nn.Module:
    """MobileNetV2: narrow sums between wide layers, ReLU6, no activation behind the projection."""

    def block(i: int, o: int, s: int) -> nn.Module:
        wide = nn.Sequential(*conv_bn(i, 4 * i, 1), nn.ReLU6())
        deep = nn.Sequential(*conv_bn(4 * i, 4 * i, stride=s, groups=4 * i), nn.ReLU6())
        trunk = nn.Sequential(wide, deep, conv_bn(4 * i, o, 1))
        return Residual(trunk, None, nn.Identity()) if i == o and s == 1 else trunk

    blocks = [block(8, 8, 1), block(8, 12, 2), block(12, 12, 1)]
    return nn.Sequential(*conv_bn(3, 8), nn.ReLU6(), *blocks, *conv_bn(12, 32, 1), nn.ReLU6(), head(32))


class Shuffle(nn.Module):
    """ShuffleNetV2: half of the channels pass, then channels are mixed."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        c = channels // 2
        self.trunk = nn.Sequential(conv_relu(c, c, 1), conv_bn(c, c, groups=c), conv_relu(c, c, 1))

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1)
        y = torch.cat([a, self.trunk(b)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet() -> nn.Module:
    return nn.Sequential(conv_relu(3, 16, stride=2), Shuffle(16), Shuffle(16), conv_relu(16, 32, 1), head(32))


class Squeeze(nn.Module):
    """Fire modules of SqueezeNet."""

    def __init__(self, i: int, s: int, e: int) -> None:
        super().__init__()
        self.squeeze, self.one, self.three = conv_relu(i, s, 1), conv_relu(s, e, 1), conv_relu(s, e)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(x)
        return torch.cat([self.one(x), self.three(x)], 1)


def squeezenet() -> nn.Module:
    readout = nn.Sequential(nn.Conv2d(32, CLASSES, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(conv_relu(3, 16), nn.MaxPool2d(2), Squeeze(16, 6, 16), Squeeze(32, 6, 16), readout)


class Recalibrated(nn.Module):
    """A squeeze that is added, not multiplied: what a gate becomes where only sums are allowed."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = conv_relu(channels, channels)
        self.pool, self.down = nn.AdaptiveAvgPool2d(1), nn.Linear(channels, 8)
        self.act, self.up, self.after = nn.ReLU(), nn.Linear(8, channels), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        gate = self.up(self.act(self.down(self.pool(y).flatten(1))))
        return self.after(y + F.interpolate(gate[:, :, None, None], size=y.shape[2:]))


def recalibrated() -> nn.Module:
    return nn.Sequential(conv_relu(3, 20, stride=2), Recalibrated(20), head(20))


def dla() -> nn.Module:
    """Aggregation: a root reads several levels of a tree."""

    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = conv_relu(16, 16), conv_relu(16, 16)
            self.root = conv_relu(48, 24, 1)

        def forward(self, x: Tensor) -> Tensor:
            a = self.left(x)
            return self.root(torch.cat([x, a, self.right(a)], 1))

    return nn.Sequential(conv_relu(3, 16), Tree(), nn.AvgPool2d(2), head(24))


def regnet() -> nn.Module:
    def block(i: int, o: int, s: int) -> nn.Module:
        trunk = nn.Sequential(conv_relu(i, o, 1), conv_relu(o, o, stride=s, groups=o // 8), conv_bn(o, o, 1))
        return Residual(trunk, conv_bn(i, o, 1, stride=s))

    return nn.Sequential(conv_relu(3, 16, stride=2), block(16, 24, 2), block(24, 24, 1), head(24))


def dilated() -> nn.Module:
    pyramid = Branches(conv_relu(20, 12, 1), *(conv_relu(20, 12, padding=d, dilation=d) for d in (1, 2, 3)))
    return nn.Sequential(conv_relu(3, 20), pyramid, conv_relu(48, 24, 1), head(24))


def padded(mode: str) -> nn.Module:
    return nn.Sequential(
        conv_relu(3, 16, padding_mode=mode), conv_relu(16, 40, padding_mode=mode),
        conv_relu(40, 24, 5, stride=2, padding_mode=mode), head(24),
    )  # fmt: skip


def asymmetric() -> nn.Module:
    return nn.Sequential(
        nn.ZeroPad2d((0, 1, 2, 1)), conv_relu(3, 20, (3, 1)), conv_relu(20, 20, (1, 7)),
        nn.ReflectionPad2d((1, 2, 0, 1)), conv_relu(20, 36, 2, padding=0), nn.AvgPool2d(3, 2, 1), head(36),
    )  # fmt: skip


def stems() -> nn.Module:
    deep = nn.Sequential(conv_relu(3, 8, stride=2), conv_relu(8, 8), conv_relu(8, 20), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(nn.AvgPool2d(2, 1), deep, conv_relu(20, 24), head(24))


def pooled_every_way() -> nn.Module:
    return nn.Sequential(
        conv_relu(3, 20), nn.AvgPool2d(3, 2, 1, count_include_pad=False), conv_relu(20, 24),
        nn.AvgPool2d(2, 2, ceil_mode=True), nn.AdaptiveAvgPool2d((2, 3)), conv_relu(24, 24, 1),
        nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), nn.Linear(96, CLASSES),
    )  # fmt: skip


def uneven_pools() -> nn.Module:
    """Windows of adaptive pooling that overlap, over 9, 25 and 36 pixels."""
    return nn.Sequential(
        conv_relu(3, 20, 2), nn.AdaptiveAvgPool2d((5, 5)), conv_relu(20, 24), nn.AdaptiveAvgPool2d((2, 2)),
        nn.Flatten(), nn.Linear(96, CLASSES),
    )  # fmt: skip


def many_pixels() -> nn.Module:
    """A global pool over 1,024 pixels."""
    return nn.Sequential(conv_relu(3, 24), conv_relu(24, 24, 1), head(24))


def multiscale() -> nn.Module:
    """A feature pyramid: down, up, sums of both, several heads' outputs side by side."""

    class Pyramid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = conv_relu(3, 16), conv_relu(16, 24, stride=2)
            self.lateral, self.top = nn.Conv2d(16, 16, 1), nn.Conv2d(24, 16, 1)
            self.smooth, self.a, self.b = conv_relu(16, 20), head(20), head(24)

        def forward(self, x: Tensor) -> Tensor:
            a = self.one(x)
            b = self.two(a)
            merged = self.lateral(a) + F.interpolate(self.top(b), scale_factor=2)
            return self.a(self.smooth(merged)) + 0.5 * self.b(b)

    return Pyramid()


def one_dimensional() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(4, 20, 5, padding=2), nn.BatchNorm1d(20), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(20, 40, 3, padding=1, padding_mode="replicate"), nn.ReLU(), nn.AvgPool1d(2),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(40, CLASSES),
    )  # fmt: skip


def mlp() -> nn.Module:
    layers = [nn.Linear(20, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 40), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(40, 30), nn.Linear(30, CLASSES))


def linear_between() -> nn.Module:
    """Two and three layers without an activation between, pools among them."""
    first = nn.Sequential(nn.Conv2d(16, 12, 1), nn.AvgPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU())
    return nn.Sequential(conv_relu(3, 16), first, nn.AvgPool2d(3), nn.Conv2d(24, 16, 1), head(16))


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    "plain": plain, "vgg": vgg, "resnet": resnet, "bottleneck": bottleneck, "preact_resnet": preact_resnet,
    "preact_bottleneck": preact_bottleneck, "densenet": densenet, "dual_path": dual_path, "inception": inception,
    "googlenet": googlenet, "xception": xception, "mobilenet": mobilenet, "inverted_residual": inverted_residual,
    "shufflenet": shufflenet, "squeezenet": squeezenet, "recalibrated": recalibrated, "dla": dla, "regnet": regnet,
    "dilated": dilated, "zeros": lambda: padded("zeros"), "reflect": lambda: padded("reflect"),
    "replicate": lambda: padded("replicate"), "circular": lambda: padded("circular"), "asymmetric": asymmetric,
    "stems": stems, "pooled_every_way": pooled_every_way, "uneven_pools": uneven_pools, "many_pixels": many_pixels,
    "multiscale": multiscale,
    "one_dimensional": one_dimensional, "mlp": mlp, "linear_between": linear_between,
}  # fmt: skip

SHAPES = {"many_pixels": (3, 32, 32), "one_dimensional": (4, 16), "mlp": (20,)}


def shape_of(name: str) -> tuple[int, ...]:
    return SHAPES.get(name, (3, 12, 12))


def stranger(name: str, seed: int = 0) -> nn.Module:
    """Random weights and random BatchNorm, with scales of both signs."""
    torch.manual_seed(seed)
    model = ARCHITECTURES[name]()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0.0, 0.3)
            nn.init.uniform_(module.running_var, 0.3, 2.0)
            nn.init.normal_(module.weight, 1.0, 0.5)
            nn.init.normal_(module.bias, 0.2, 0.4)
        elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    return model.eval()


@torch.no_grad()
def dyadic(name: str, seed: int = 0) -> nn.Module:
    """The same architecture with few binary digits in every number, so that all sums are exact in any arithmetic."""
    model = stranger(name, seed)
    generator = torch.Generator().manual_seed(seed)

    def numbers(like: Tensor, low: int, high: int, unit: float) -> Tensor:
        return torch.randint(low, high + 1, like.shape, generator=generator).float() * unit

    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.eps = 0.0
            module.running_var.fill_(1.0)
            module.running_mean.copy_(numbers(module.running_mean, -2, 2, 0.125))
            module.weight.copy_(numbers(module.weight, 1, 3, 0.5))
            module.bias.copy_(numbers(module.bias, -1, 3, 0.125))
        elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
            size = 2.0 ** -round(0.5 * torch.tensor(module.weight[0].numel()).log2().item())
            module.weight.copy_(numbers(module.weight, -4, 4, size / 2))
            if module.bias is not None:
                module.bias.copy_(numbers(module.bias, -2, 2, 0.125))
    return model
