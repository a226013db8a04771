"""Data sets as PyTorch users have them: streamed, in any of the usual forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import ratenorm as rn
from ratenorm.data import Batches, from_dataset, split_holdout
from ratenorm.errors import DataError
from ratenorm.train.config import Stage1

N = 40
X = torch.rand(N, 1, 6, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(N) % 2


class Counting(Dataset[Any]):
    """A data set that counts what is read from it."""

    def __init__(self, items: list[Any], targets: list[int] | None = None) -> None:
        self.items, self.read = items, 0
        if targets is not None:
            self.targets, self.classes = targets, ["even", "odd"]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        self.read += 1
        return self.items[index]


def torchvision_style() -> Counting:
    return Counting([(x, int(y)) for x, y in zip(X, Y, strict=True)], Y.tolist())


def hugging_face_style() -> Counting:
    pictures = [Image.fromarray((x[0] * 255).byte().numpy()) for x in X]
    return Counting([{"image": p, "label": int(y)} for p, y in zip(pictures, Y, strict=True)])


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)).eval()


def test_images_are_read_when_they_are_needed() -> None:
    dataset = torchvision_style()
    images = from_dataset(dataset, "mine")
    assert images.classes == ("even", "odd")
    assert dataset.read == 1  # the first image, for its shape
    rest, held = split_holdout(images, 10, 0)
    assert dataset.read <= 3
    batch, labels = next(iter(Batches(held, 4)))
    assert dataset.read <= 8
    assert batch.shape == (4, 1, 6, 6)
    assert labels.tolist() == held.labels[:4].tolist()
    assert len(rest) == 30


@pytest.mark.parametrize("make", [torchvision_style, hugging_face_style, lambda: TensorDataset(X, Y)])
def test_streamed_images_are_those_of_memory(make: Any) -> None:
    kept = from_dataset((X if make is not hugging_face_style else (X * 255).byte(), Y))
    streamed = from_dataset(make())
    pairs = zip(Batches(kept, 7, shuffle=True, seed=3), Batches(streamed, 7, shuffle=True, seed=3), strict=True)
    for (a, label_a), (b, label_b) in pairs:
        assert torch.equal(a, b)
        assert torch.equal(label_a, label_b)


def test_a_loader_stands_for_its_data_set() -> None:
    dataset = torchvision_style()
    assert from_dataset(DataLoader(dataset, batch_size=5)).labels.tolist() == Y.tolist()


def test_training_takes_a_data_set() -> None:
    config = Stage1(epochs=1, batch_size=8, lr=0.01, holdout=0.25)
    first, second = model(), model()
    rn.train_accuracy(first, from_dataset((X, Y)), config, show=False)
    rn.train_accuracy(second, torchvision_style(), config, show=False)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "data",
    [
        [(X, Y)],
        DataLoader(TensorDataset(X, Y), batch_size=7),
        torchvision_style(),
        TensorDataset(X, Y),
        from_dataset((X, Y)),
    ],
    ids=["batches", "loader", "dataset", "tensor dataset", "image set"],
)
def test_convert_calibrate_and_evaluate_take_the_same_data(data: Any) -> None:
    conversion = rn.convert(model(), rn.MaxNorm(), example=X[:1], calibration=data)
    expected = rn.convert(model(), rn.MaxNorm(), example=X[:1], calibration=X)
    assert conversion.scales["1"].threshold == expected.scales["1"].threshold
    assert rn.calibrate(conversion, data, steps=2).calibrated[0].images == N
    found = rn.evaluate(conversion, data, 4)
    assert found.images == N
    assert found.accuracy == rn.evaluate(conversion, [(X, Y)], 4).accuracy


def test_arrays_and_colour_pictures_become_channels_first() -> None:
    pixels = np.zeros((5, 4, 3), np.uint8)
    for image in (pixels, Image.fromarray(pixels), Image.fromarray(pixels).convert("P")):
        assert from_dataset([(image, 0), (image, 1)]).image_shape == (3, 5, 4)
    assert from_dataset([(pixels[..., 0], 0), (pixels[..., 0], 1)]).image_shape == (1, 5, 4)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([{"picture": X[0], "label": 0}], "a dictionary with the keys"),
        ([(X[0], "cat")], "must be one integer, got 'cat'"),
        ([("x.png", 0)], r"got \(str, int\)"),
        ([(X[0], 0), (X[0, :, :3], 1)], r"item 1 is .* \[1, 3, 6\], item 0 is .* \[1, 6, 6\]"),
        ([], "it is empty"),
        (7, "a int has no length"),
    ],
)
def test_what_is_no_data_set_is_told(data: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_dataset(data)
