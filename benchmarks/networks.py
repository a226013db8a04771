"""Networks and images for the benchmarks: trained ones from files, or stand-ins that say so."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ratenorm import models
from ratenorm.convert.convert import Conversion, convert
from ratenorm.convert.thresholds import Percentile, Trained
from ratenorm.core.rate_norm import rate_norm_layers
from ratenorm.data import Normalisation, load
from ratenorm.errors import RatenormError
from ratenorm.io.networks import load_network
from ratenorm.workflows.train import test_accuracy


@dataclass(frozen=True)
class Subject:
    """A converted network with images to run it on."""

    name: str
    conversion: Conversion
    images: Tensor
    trained: bool
    source: str = "random weights"  # the file, by its checksum, and the accuracy of the network before conversion

    def describe(self) -> dict[str, object]:
        return {"network": self.name, "trained": self.trained, "source": self.source}


def subject(name: str, file: Path | None, images: int, v0: float = 0.0) -> Subject:
    """The network of a file, with its trained thresholds; without one, a stand-in called `name`.

    A trained ReLU network gets thresholds at the 99.9th percentile of 200 training images (Robust Norm).

    The stand-in has random weights, BatchNorm statistics of real images and thresholds at the 99.9th percentile. Its
    firing rates are of the right size in the first layers and too small behind: it shows how the engine works, and
    proves nothing about a trained network.
    """
    torch.manual_seed(0)
    if file is not None:
        model, spec = load_network(file)
        test = load(spec.dataset, "test")
        x = spec.normalisation(test.images[:images].float() / 255)
        right = test_accuracy(model, spec, test.subset(range(1000)))
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        source = f"{file.name} (sha256 {digest}…), {100 * right:.1f} % of 1,000 test images before conversion"
        if any(rate_norm_layers(model)):
            return Subject(spec.model, convert(model, Trained(), example=x[:1], v0=v0), x, True, source)
        seen = spec.normalisation(load(spec.dataset, "train").images[:200].float() / 255)
        conversion = convert(model, Percentile(99.9), example=x[:1], calibration=seen, v0=v0)
        return Subject(spec.model, conversion, x, True, f"{source}; ReLU, thresholds by Robust Norm")
    x = _pictures(images)
    model = models.build(name, activation=nn.ReLU).train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
            nn.init.constant_(module.bias, -0.6)  # most units of a trained network are silent for most images
    with torch.no_grad():
        model(x[:64] if len(x) >= 64 else _pictures(64))
    calibration = _pictures(64)
    conversion = convert(model.eval(), Percentile(99.9), example=x[:1], calibration=calibration, v0=v0)
    return Subject(name, conversion, x, False)


def _pictures(count: int) -> Tensor:
    """CIFAR-10 test images, or smooth noise where the data set is not at hand."""
    try:
        images = load("cifar10", "test").images[:count].float() / 255
        return Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))(images)
    except RatenormError:
        generator = torch.Generator().manual_seed(0)
        coarse = torch.randn(count, 3, 4, 4, generator=generator)
        smooth = nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear")
        return smooth + 0.2 * torch.randn(count, 3, 32, 32, generator=generator)
