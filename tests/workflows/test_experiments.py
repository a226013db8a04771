"""The demo at a tiny scale, evaluation, tables, and looking inside."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from builders import image_set, tiny_conversion
from ratenorm import records
from ratenorm.core.coding import Constant, Poisson
from ratenorm.core.rate_norm import rate_norm_layers
from ratenorm.data import Augment, Batches
from ratenorm.errors import DataError, FileFormatError, UsageError
from ratenorm.io.networks import NetworkSpec, load_network
from ratenorm.io.run_folder import RunFolder
from ratenorm.io.spiking import load
from ratenorm.simulate.evaluate import BINS, evaluate
from ratenorm.simulate.simulate import simulate
from ratenorm.train.config import Stage1, Stage2
from ratenorm.train.from_relu import start_from_relu_
from ratenorm.train.stage1 import hold_out
from ratenorm.workflows.calibration import calibration_images
from ratenorm.workflows.data import DataConfig
from ratenorm.workflows.demo import DemoConfig, run_demo
from ratenorm.workflows.environment import hardware, versions
from ratenorm.workflows.evaluate import coding_of, spec_of
from ratenorm.workflows.examples import look_inside
from ratenorm.workflows.record import scale_of
from ratenorm.workflows.tables import accuracy_table
from ratenorm.workflows.train import TrainConfig, at_p_one, train_network, training_images

TRAINING = TrainConfig(
    stage1=Stage1(epochs=2, batch_size=32, lr=0.05, holdout=40, augment=Augment(shift=1), ema=0.9),
    stage2=Stage2(lam=0.05, batch_size=32, holdout=40, images=200),
)
SPEC = NetworkSpec("cnn7", channels=1, size=(8, 8), mean=(0.5,), std=(0.25,), num_classes=3)


@pytest.mark.usefixtures("small_mnist")
def test_the_demo_at_a_tiny_scale(tmp_path: Path) -> None:
    spoken: list[str] = []
    config = DemoConfig(steps=8, images=20, engine="dense", training=TRAINING)
    with RunFolder(tmp_path / "demo") as folder:
        folder.configure(config.to_json())
        record = run_demo(config, folder, spoken.append)
    kept = records.read(tmp_path / "demo" / records.FILE_NAME)
    assert [run["name"] for run in kept["runs"]] == [run["name"] for run in record["runs"]]
    assert kept["runs"][0]["accuracy"] == pytest.approx(record["runs"][0]["accuracy"], abs=1e-6)
    names = ["p = 1, v(0) = 0", "p = 1, v(0) = θ/2", "stage 2, v(0) = 0", "stage 2, v(0) = θ/2"]
    assert [run["name"] for run in record["runs"]] == names
    assert all(name in spoken[-1] for name in names)
    assert kept["scale"].startswith("reduced: 20 of 60 test images")
    assert {(e["run"], e["index"]) for e in record["examples"]} == {(n, i) for n in names[3:] for i in (0, 1, 8)}
    nets = sorted(f.name for f in (tmp_path / "demo").glob("*-v*.safetensors"))
    assert len(nets) == 4
    assert all(load(tmp_path / "demo" / name).populations for name in nets)
    first, second = (r["layers"][0]["threshold"] for r in (record["runs"][0], record["runs"][2]))
    assert second < first  # stage 2 lowered it
    with RunFolder(tmp_path / "demo", "resume") as folder:
        folder.configure(config.to_json())
        again = run_demo(config, folder, spoken.append)
    assert [r["accuracy"] for r in again["runs"]] == [r["accuracy"] for r in record["runs"]]


@pytest.mark.usefixtures("small_mnist")
def test_p_one_is_the_network_of_stage_1(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        train_network(TRAINING, folder, show=False)
        stage1, _ = load_network(folder / "stage1.safetensors")
        again = at_p_one(folder / "stage2.safetensors")
    x = torch.rand(2, 1, 28, 28)
    assert torch.equal(stage1(x), again(x))


@pytest.mark.usefixtures("small_mnist")
def test_training_a_relu_network_has_no_second_stage(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder, pytest.raises(UsageError, match="no p for stage 2"):
        train_network(TrainConfig(activation="relu"), folder, show=False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"activation": "relu", "stage2": None, "stage1": Stage1(lam=0.1)}, "no rates to learn"),
        ({"omega": 2.0}, "Give that one with --from-relu"),
        ({"stage1": Stage1(teacher=0.5)}, "Training with --teacher: .* Give it with --from-relu"),
        ({"omega": 1.0, "from_relu": "x"}, "it must be above 1"),
        ({"omega": math.nan, "from_relu": "x"}, "it must be above 1"),
    ],
)
def test_trainings_that_cannot_be_are_refused_before_any_folder(wrong: dict, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TrainConfig(**wrong)


@pytest.mark.usefixtures("small_mnist")
def test_start_thresholds_come_from_images_that_are_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunFolder(tmp_path / "relu") as folder:
        train_network(replace(TRAINING, activation="relu", stage2=None), folder, show=False)
    config = replace(TRAINING, stage2=None, from_relu=str(tmp_path / "relu" / "stage1.safetensors"), omega=1.5)
    seen: list[torch.Tensor] = []

    def watching(model: nn.Module, relu: nn.Module, batches: Batches, omega: float | None) -> None:
        assert omega == 1.5
        seen.append(batches.images.images)
        start_from_relu_(model, relu, batches, omega)

    monkeypatch.setattr("ratenorm.workflows.train.start_from_relu_", watching)
    with RunFolder(tmp_path / "rnl") as folder:
        model = train_network(config, folder, show=False).model
    _, held_out = hold_out(training_images(config), config.stage1.holdout, config.stage1.seed)
    assert held_out is not None
    learned = {image.numpy().tobytes() for image in seen[0]}
    assert len(seen) == 1
    assert learned
    assert not learned & {image.numpy().tobytes() for image in held_out.images}
    assert all(layer.frozen for _, layer in rate_norm_layers(model))


@pytest.mark.usefixtures("small_mnist")
def test_calibration_images_are_training_images_as_in_training() -> None:
    spec = NetworkSpec("cnn7", channels=1, size=(28, 28), mean=(0.5,), std=(0.25,))
    few, all_of_them = (calibration_images(DataConfig("mnist"), spec, n) for n in (30, 10_000))
    assert (len(few), len(all_of_them)) == (30, 360)
    assert float(few.min()) == -2.0
    with pytest.raises(UsageError, match="at least 1 image"):
        calibration_images(DataConfig("mnist"), spec, 0)


def test_evaluation_adds_up_over_batches() -> None:
    conversion, x = tiny_conversion()
    labels = torch.arange(len(x)) % 3
    whole = evaluate(conversion.net, [(x, labels)], 8, engine="dense")
    seen: list[int] = []
    parts = evaluate(
        conversion.net, zip(x.split(5), labels.split(5)), 8, engine="dense", progress=lambda e: seen.append(e.images)
    )
    assert seen == [5, 10, 12]
    assert parts.accuracy == whole.accuracy
    assert parts.analog_accuracy == whole.analog_accuracy
    assert torch.equal(parts.spikes, whole.spikes)
    assert torch.equal(parts.synaptic_ops, whole.synaptic_ops)
    result = simulate(conversion.net, x, 8, engine="dense", fit=True)
    assert whole.accuracy == result.accuracy(labels).tolist()
    for a, b, layer in zip(parts.layers, whole.layers, result.layers, strict=True):
        assert (a.dead, a.saturated, a.negative) == (b.dead, b.saturated, b.negative)
        assert torch.equal(a.rates, b.rates)
        assert int(a.rates.sum()) == len(x) * layer.neurons
        bins = [min(BINS - 1, int(count) * BINS // 8) for count in layer.counts.flatten()]
        assert b.rates.tolist() == [bins.count(k) for k in range(BINS)]
        assert a.fit is not None
        assert b.fit is not None
        torch.testing.assert_close(a.fit.k, b.fit.k)
        assert b.dead == int((layer.counts == 0).sum())


def test_k_is_measured_on_some_images_only() -> None:
    conversion, x = tiny_conversion()
    labels = torch.zeros(len(x), dtype=torch.int64)
    result = evaluate(conversion.net, zip(x.split(4), labels.split(4)), 3, engine="dense", fit_images=0)
    assert all(layer.fit is None for layer in result.layers)


def test_evaluations_without_sense_are_refused() -> None:
    conversion, x = tiny_conversion()
    with pytest.raises(DataError, match="no image"):
        evaluate(conversion.net, [], 3, engine="dense")
    with pytest.raises(DataError, match=r"shape \(2,\) for 12 images"):
        evaluate(conversion.net, [(x, torch.zeros(2))], 3, engine="dense")


def test_looking_inside() -> None:
    conversion, _ = tiny_conversion()
    data = image_set(6)
    spec = NetworkSpec("cnn7", channels=1, size=(8, 8), mean=(0.0,), std=(1.0,), num_classes=3)
    found = look_inside("run", conversion.net, data, spec, (0, 4, 99), 5)
    assert [e["index"] for e in found] == [0, 4]  # there is no image 99
    entry = found[1]
    result = simulate(conversion.net, data.images[4:5], 5, engine="dense", first_spikes=True)
    torch.testing.assert_close(torch.tensor(entry["scores"]), result.logits[:, 0])
    assert 1 <= entry["settled"] <= 5
    answers = result.logits[:, 0].argmax(1).tolist()
    assert len(set(answers[entry["settled"] - 1 :])) == 1
    for layer, activity in zip(entry["layers"], result.layers, strict=True):
        assert all(1 <= step <= 5 and 0 <= neuron < 64 for step, neuron in layer["raster"])
        first = activity.first_spike[activity.first_spike > 0]
        assert layer["first_spike"] == (int(first.min()) if len(first) else None)
        if activity.neurons <= 64:
            assert len(layer["raster"]) == int(activity.counts.sum())
    assert len(entry["image"]) == 8


def test_poisson_coding_covers_every_pixel() -> None:
    assert coding_of("constant", 3, SPEC) == Constant()
    assert coding_of("poisson", 3, SPEC) == Poisson(2.0, 3)  # (1 - 0.5) / 0.25
    assert next(iter(Batches(image_set(4), 4, normalise=SPEC.normalisation)))[0].abs().max() <= 2.0


@pytest.mark.parametrize("about", [{}, {"spec": {"colour": 1}}, {"spec": 3}, {"spec": ["a"]}], ids=str)
def test_a_file_that_does_not_say_what_it_was_fed_is_refused(about: dict) -> None:
    with pytest.raises(FileFormatError, match="does not say which images"):
        spec_of(about, "net.safetensors")


def test_the_table_says_when_the_accuracy_arrives() -> None:
    run = {
        "name": "max", "steps": 4, "accuracy": [0.1, 0.5, 0.97, 0.98], "neurons": 10, "spikes": [1.0, 2.0, 3.0, 4.0],
        "synaptic_ops": [10.0, 20.0, 30.0, 40.0], "input_macs": 1000, "membrane_updates": 10,
    }  # fmt: skip
    late = {**run, "name": "late", "steps": 2, "accuracy": [0.1, 0.2]}
    record = {
        "title": "A title", "ann": {"name": "cnn7", "accuracy": 0.98, "macs": 5000},
        "data": {"images": 100, "split": "test", "name": "mnist"}, "runs": [run, late],
    }  # fmt: skip
    text = accuracy_table(record)
    arrived = next(line for line in text.splitlines() if line.startswith("max"))
    assert arrived.split("|")[1].split()[:2] == ["3", "0.60"]  # step 3, 6 spikes on 10 neurons
    energy = (1000 * 4.6 + (60 + 30) * 0.9) / 1e6
    assert float(arrived.split()[-1]) == pytest.approx(energy, abs=0.01)
    assert "never" in next(line for line in text.splitlines() if line.startswith("late"))
    assert "98.00" in text


def test_scale_and_environment() -> None:
    assert scale_of(10, 10, "images") == "full"
    assert scale_of(1000, 60_000, "images") == "reduced: 1,000 of 60,000 images"
    assert set(versions()) == {"ratenorm", "torch", "numpy", "python"}
    assert hardware()["cores"] >= 1
    assert math.isfinite(hardware()["memory_gb"])


def test_a_training_leaves_a_record(trained_run: Path) -> None:
    record = records.read(trained_run / records.FILE_NAME)
    assert (record["kind"], record["runs"]) == ("train", [])
    assert 0.0 < record["ann"]["accuracy"] <= 1.0
    assert all(value > 0 for value in record["config"]["thresholds"].values())
    assert "No spiking network was run" in accuracy_table(record)
