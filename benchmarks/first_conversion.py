"""A stranger's networks, converted with no options: accuracy at T = 8 beside the ANN.

Three networks that are not of this package learn MNIST for a few epochs, two from a folder of PNGs and one from a
torch Dataset: a small residual CNN, a network of 1-D convolutions and an MLP. Each is converted by `rn.convert` without
a method, with 1,000 training images, and evaluated on all test images.

    python benchmarks/first_conversion.py          writes benchmarks/results/first_conversion.json
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import ratenorm as rn
from ratenorm.workflows.environment import hardware, versions

SEED, EPOCHS, TRAIN, STEPS = 0, 3, 12_000, (1, 2, 4, 8, 16)
OUT = Path(__file__).parent / "results" / "first_conversion.json"


class Residual(nn.Module):
    """Two residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(16, 16, 3, padding=1, bias=False),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, padding=1, bias=False),
                nn.BatchNorm2d(16),
            )
            for _ in range(2)
        )
        self.pool, self.head = nn.AvgPool2d(7), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return self.head(self.pool(x).flatten(1))


def one_dimensional() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(2),
        nn.Conv1d(1, 16, 9, 4, 4),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Conv1d(16, 32, 9, 4, 4),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 49, 10),
    )


def mlp() -> nn.Module:
    layers = [nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)]
    return nn.Sequential(*layers)


class Pairs(Dataset[Any]):
    """A torch Dataset of (image, label)."""

    def __init__(self, images: rn.data.ImageSet) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index]


def folder_of(images: rn.data.ImageSet, place: Path) -> rn.data.ImageSet:
    for index, (image, label) in enumerate(images):
        (place / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray((image[0] * 255).byte().numpy()).save(place / str(label) / f"{index}.png")
    return rn.data.load_folder(place)


def trained(model: nn.Module, data: Any) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    generator = torch.Generator().manual_seed(SEED)
    for _ in range(EPOCHS):
        for x, y in DataLoader(data, 64, shuffle=True, generator=generator):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    train = rn.data.load("mnist", "train").subset(range(TRAIN))
    test = rn.data.load("mnist", "test")
    rows = []
    with tempfile.TemporaryDirectory() as place:
        pictures = folder_of(train, Path(place))
        cases = [
            ("residual CNN", Residual, pictures),
            ("1-D network", one_dimensional, Pairs(train)),
            ("MLP", mlp, pictures),
        ]
        for name, make, data in cases:
            torch.manual_seed(SEED)
            model = trained(make(), data)
            some = torch.stack([data[i][0] for i in range(0, len(data), len(data) // 1000)][:1000])
            began = time.perf_counter()
            conversion = rn.convert(model, example=some[:1], calibration=some)
            seconds = time.perf_counter() - began
            calibrated = rn.calibrate(conversion, some[:600], steps=8)
            row: dict[str, Any] = {"network": name, "method": conversion.method.to_json(), "v0": conversion.v0}
            row["seconds_to_convert"] = round(seconds, 2)
            for key, one in (("accuracy", conversion), ("with_step_bias", calibrated)):
                found = rn.evaluate(one, test, max(STEPS))
                row[key] = {str(t): found.accuracy[t - 1] for t in STEPS}
            with torch.no_grad():
                right = sum(int((model(x).argmax(1) == y).sum()) for x, y in DataLoader(Pairs(test), 500))
            row["ann"] = right / len(test)
            row["lost_at_8"] = row["ann"] - row["accuracy"]["8"]
            rows.append(row)
            print(row)
    about = {"seed": SEED, "epochs": EPOCHS, "train_images": TRAIN, "test_images": len(test)}
    OUT.write_text(
        json.dumps(about | {"hardware": hardware(), "versions": versions(), "networks": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
