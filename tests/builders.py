"""Small things to build tests from: dyadic numbers, tiny networks, tiny data, spiking networks by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ratenorm.convert.convert import Conversion, convert
from ratenorm.convert.thresholds import MaxNorm, Method
from ratenorm.core.rate_norm import RateNorm
from ratenorm.data import ImageSet
from ratenorm.graph.net import INPUT, Node, SpikingNet
from ratenorm.graph.ops import Fire, Input, Op

Activation = Callable[[], nn.Module]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def dyadic(seed: int, *shape: int, low: int = -8, high: int = 8, unit: float = 1 / 8) -> Tensor:
    """Multiples of `unit` (a power of two): sums and products of a few of them are exact in float32, in any order."""
    return torch.randint(low, high + 1, shape, generator=generator(seed)).float() * unit


def make_dyadic_(model: nn.Module, seed: int = 0, unit: float = 1 / 8) -> nn.Module:
    """Every weight and bias a multiple of `unit`."""
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.copy_(dyadic(seed + i, *parameter.shape, unit=unit))
    return model


def randomise_batch_norm_(model: nn.Module, seed: int = 0) -> nn.Module:
    """Random statistics and affine parameters for every BatchNorm; scales of both signs."""
    g = generator(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                shape = module.running_mean.shape
                module.running_mean.copy_(torch.randn(shape, generator=g) * 0.5)
                module.running_var.copy_(torch.rand(shape, generator=g) * 2 + 0.1)
                if module.affine:
                    module.weight.copy_(torch.randn(shape, generator=g) + 0.3)
                    module.bias.copy_(torch.randn(shape, generator=g) * 0.5)
    return model


def tiny_cnn(activation: Activation = nn.ReLU, channels: int = 4) -> nn.Sequential:
    """Two convolutions with BatchNorm, pooling and a linear layer, for [1, 8, 8] images."""
    model = nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        activation(),
        nn.AvgPool2d(2),
        nn.Conv2d(channels, channels, 3, padding=1),
        activation(),
        nn.Flatten(),
        nn.Linear(channels * 16, 3),
    )
    return randomise_batch_norm_(model).eval()


def tiny_mlp(activation: Activation = nn.ReLU, sizes: tuple[int, ...] = (6, 8, 8, 3)) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1]).eval()


def tiny_conversion(v0: float = 0.0, method: Method | None = None, images: int = 12) -> tuple[Conversion, Tensor]:
    """A converted tiny network and the images it was calibrated on."""
    torch.manual_seed(3)
    x = torch.rand(images, 1, 8, 8)
    return convert(tiny_cnn(), method or MaxNorm(), example=x[:1], calibration=x, v0=v0), x


def set_maxima_(model: nn.Module, x: Tensor) -> nn.Module:
    """Run a Rate-Norm network once so that its maxima are those of `x`."""
    for module in model.modules():
        if isinstance(module, RateNorm):
            module.momentum = 1.0
            module.train()
    with torch.no_grad():
        model(x)
    return model.eval()


def chain(input_shape: tuple[int, ...], *ops: tuple[str, Op]) -> SpikingNet:
    """A spiking network whose operations follow one another."""
    nodes = [Node(INPUT, Input())]
    for name, op in ops:
        nodes.append(Node(name, op, (nodes[-1].name,)))
    return SpikingNet(tuple(nodes), nodes[-1].name, input_shape)


def fire(threshold: float = 1.0, v0: float = 0.0) -> Fire:
    return Fire(torch.tensor([threshold]), torch.tensor([threshold * v0]))


def image_set(count: int = 60, classes: int = 3, shape: tuple[int, int, int] = (1, 8, 8), seed: int = 0) -> ImageSet:
    """Images whose class can be learned: a bright band whose place is the class."""
    g = generator(seed)
    labels = torch.arange(count) % classes
    images = torch.rand(count, *shape, generator=g) * 0.3
    for i, label in enumerate(labels.tolist()):
        start = label * shape[1] // classes
        images[i, :, start : start + shape[1] // classes] += 0.6
    return ImageSet("bands", images, labels, tuple(f"band {c}" for c in range(classes)))


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same_state(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
