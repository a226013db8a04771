"""NaN and infinity stop a run within one step, by name, and reach no file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ratenorm.data import Batches, ImageSet
from ratenorm.errors import ConversionError, DataError, FileFormatError, TrainingError
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import Fire
from ratenorm.io.networks import NetworkSpec, load_network, save_network
from ratenorm.io.run_folder import RunFolder
from ratenorm.simulate.simulate import simulate
from ratenorm.train.checkpoint import read_checkpoint
from ratenorm.train.loop import run_stage
from ratenorm.train.stage1 import _AccuracyStage, train_accuracy
from torturing.subjects import STAGE1, bands, small_network, small_spiking_net

CHECKPOINT = "stage1.checkpoint.safetensors"


class Backfire(torch.autograd.Function):
    """Finite forwards, infinite backwards from a chosen call on."""

    calls = 0

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *grads: torch.Tensor) -> torch.Tensor:
        Backfire.calls += 1
        return grads[0] * (float("inf") if Backfire.calls == 7 else 1.0)


class Layer(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Backfire.apply(x)


def test_an_infinite_gradient_reaches_neither_weights_nor_checkpoint(tmp_path: Path) -> None:
    Backfire.calls = 0
    model = nn.Sequential(*small_network(), Layer())
    with RunFolder(tmp_path / "run") as folder:
        message = r"the gradient became (inf|nan) in epoch 2, batch 2; the gradient of '8.bias'.*last good state"
        with pytest.raises(TrainingError, match=message):
            train_accuracy(model, bands(), STAGE1, run=folder, show=False)
        kept = read_checkpoint(folder / CHECKPOINT)
    assert (kept.progress["epoch"], kept.progress["batch"]) == (1, 1)
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_bad_weights_are_never_written_over_good_ones(tmp_path: Path) -> None:
    model = small_network()
    stage = _AccuracyStage(model, Batches(bands(), 10), None, STAGE1)
    plain = stage.step

    def step(images: torch.Tensor, labels: torch.Tensor, step: int) -> dict[str, float]:
        figures = plain(images, labels, step)
        if step == 3:
            model[0].weight.data[0] = float("nan")
        return figures

    stage.step = step  # type: ignore[method-assign]
    with RunFolder(tmp_path / "run") as folder:
        with pytest.raises(TrainingError, match=r"model/0\.weight holds NaN or infinity in epoch 1 after 4 batches"):
            run_stage(stage, folder, 0.0, show=False)
        assert read_checkpoint(folder / CHECKPOINT).progress["batch"] == 3


def test_bad_images_are_named_with_their_batch() -> None:
    images = bands().images.clone()
    images[17] = float("inf")
    with pytest.raises(DataError, match=r"batch 1 of epoch 0.*the first is image 17"):
        list(Batches(ImageSet("bands", images, bands().labels, bands().classes), 10))


@pytest.mark.parametrize("engine", ["dense", "event"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_image_is_not_simulated(engine: str, value: float) -> None:
    x = bands().images[:4].clone()
    x[2, 0, 1, 1] = value
    with pytest.raises(DataError, match="image 102 holds NaN or infinity"):
        simulate(small_spiking_net(), x, 2, engine=engine, first_image=100)  # type: ignore[arg-type]


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_bad_threshold_makes_no_network(threshold: float) -> None:
    net = small_spiking_net()
    name = net.populations[0].name
    bad = Fire(torch.tensor([threshold]), torch.tensor([0.0]))
    nodes = tuple(Node(n.name, bad, n.inputs) if n.name == name else n for n in net.nodes)
    with pytest.raises(ConversionError, match=f"population '{name}' has threshold"):
        SpikingNet(nodes, net.output, net.input_shape)


def test_a_network_file_with_bad_weights_is_refused(tmp_path: Path) -> None:
    spec = NetworkSpec("cnn7", channels=1, size=(28, 28), mean=(0.5,), std=(0.5,))
    model = spec.build()
    model.classifier.weight.data[0, 0] = float("nan")
    save_network(tmp_path / "n.safetensors", model, spec)
    with pytest.raises(FileFormatError, match=r"'classifier\.weight' holds NaN or infinity"):
        load_network(tmp_path / "n.safetensors")
