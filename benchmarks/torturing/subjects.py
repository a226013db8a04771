"""Small things to torture: a training of a second, a network, images, and a valid file of every kind."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import nn

from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import MaxNorm
from ratenorm.core.rate_norm import RateNorm
from ratenorm.data import Augment, ImageSet
from ratenorm.graph.net import SpikingNet
from ratenorm.io.files import opened_line, to_json, write_tensors
from ratenorm.io.run_folder import METRICS, Mode, RunFolder, holds_a_run
from ratenorm.train.config import Stage1, Stage2
from ratenorm.train.stage1 import train_accuracy
from ratenorm.train.stage2 import train_latency

RESULT = "result.safetensors"
STAGE1 = Stage1(
    epochs=3,
    batch_size=10,
    lr=0.05,
    holdout=10,
    ema=0.9,
    augment=Augment(shift=1),
    checkpoint_minutes=0.0,
    lam=0.1,
    rest=0.5,
    steps=8,
    settle=20,
)  # a checkpoint after every step
STAGE2 = Stage2(epochs=1, batch_size=10, lam=0.1, holdout=10, checkpoint_minutes=0.0)


def bands(count: int = 60, seed: int = 0) -> ImageSet:
    """[1, 8, 8] images with a bright band whose place is the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    images = torch.rand(count, 1, 8, 8, generator=generator) * 0.3
    for i, label in enumerate(labels.tolist()):
        images[i, :, 2 * label : 2 * label + 2] += 0.6
    return ImageSet("bands", images, labels, ("top", "middle", "bottom"))


def small_network(activation: type[nn.Module] = RateNorm) -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        activation(),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        activation(),
        nn.Flatten(),
        nn.Linear(64, 3),
    )


def small_spiking_net() -> SpikingNet:
    """Converted, with average and gated max-pooling and two populations."""
    images = bands().images
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.AvgPool2d(2)
    )
    whole = nn.Sequential(*model, nn.Flatten(), nn.Linear(4, 3)).eval()
    return convert(whole, MaxNorm(), example=images[:1], calibration=images, v0=0.5).net


def train_and_keep(path: Path) -> str:
    """Both stages in a folder, from wherever an earlier attempt stopped; returns a hash of all that was learned."""
    mode: Mode = "resume" if holds_a_run(path) else "new"
    model = small_network()
    with RunFolder(path, mode) as folder:
        folder.configure({"stage1": STAGE1.to_json(), "stage2": STAGE2.to_json()})
        train_accuracy(model, bands(), STAGE1, run=folder, show=False)
        train_latency(model, bands(), STAGE2, run=folder, show=False)
        write_tensors(folder / RESULT, model.state_dict(), {"format": "result", "version": 1})
        figures = [_timeless(line) for line in (folder / METRICS).read_text().splitlines()]
        content = (folder / RESULT).read_bytes() + "\n".join(figures).encode()
    return hashlib.sha256(content).hexdigest()


def _timeless(line: str) -> str:
    """A line of metrics without what the clock says."""
    return to_json(
        {key: value for key, value in opened_line(line.encode(), sealed=True).items() if "seconds" not in key}
    )
