"""Resuming equals not stopping: interrupted by a real signal at a random batch, both stages end bit for bit alike."""

from __future__ import annotations

import errno
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from builders import image_set, same_state, set_maxima_, state_of, tiny_cnn
from ratenorm.core.rate_norm import RateNorm, rate_norm_layers
from ratenorm.data import Augment, Batches
from ratenorm.errors import FileFormatError, RatenormError, TrainingError
from ratenorm.io.run_folder import METRICS, RunFolder
from ratenorm.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from ratenorm.train.config import Stage1, Stage2
from ratenorm.train.from_relu import start_from_relu_
from ratenorm.train.interrupt import Interrupted, Interrupts
from ratenorm.train.loop import Position
from ratenorm.train.stage1 import _AccuracyStage, train_accuracy
from ratenorm.train.stage2 import _LatencyStage, train_latency

STAGE1 = Stage1(epochs=3, batch_size=8, lr=0.05, holdout=12, augment=Augment(shift=1), ema=0.9, label_smoothing=0.1)
RATES = replace(STAGE1, lam=0.3, energy=0.5, rest=0.5, steps=8, teacher=0.5, settle=16)
STAGE2 = Stage2(epochs=2, batch_size=12, lam=0.3, holdout=12, per_layer=True)
BATCHES1, BATCHES2 = 3 * 6, 2 * 2 * 4  # 60 images, 12 held out
Train = Callable[[nn.Module, RunFolder | None], object]


def fresh() -> nn.Module:
    torch.manual_seed(7)
    return tiny_cnn(RateNorm, channels=3)


def stage1(model: nn.Module, folder: RunFolder | None) -> object:
    return train_accuracy(model, image_set(), STAGE1, run=folder, show=False)


def stage1_at_one_omega(model: nn.Module, folder: RunFolder | None) -> object:
    torch.manual_seed(8)
    relu = tiny_cnn(nn.ReLU, channels=3)
    start_from_relu_(model, relu, Batches(image_set(), 20), omega=1.5)
    return train_accuracy(model, image_set(), RATES, run=folder, show=False, teacher=relu)


def stage2(model: nn.Module, folder: RunFolder | None) -> object:
    set_maxima_(model, image_set().images)
    return train_latency(model, image_set(), STAGE2, run=folder, show=False)


STAGES: dict[str, tuple[Train, type, int]] = {
    "stage 1": (stage1, _AccuracyStage, BATCHES1),
    "stage 1 at one Omega": (stage1_at_one_omega, _AccuracyStage, BATCHES1),
    "stage 2": (stage2, _LatencyStage, BATCHES2),
}


def signalling(kind: type, after: int, number: int, patch: pytest.MonkeyPatch) -> None:
    """Raise a real signal while the given batch is being learned from."""
    plain, done = kind.step, []

    def step(self: object, *args: object) -> object:
        done.append(1)
        if len(done) == after:
            signal.raise_signal(number)
        return plain(self, *args)

    patch.setattr(kind, "step", step)


@pytest.mark.parametrize("name", STAGES)
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_resuming_equals_not_stopping(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    train, kind, batches = STAGES[name]
    after = data.draw(st.integers(1, batches - 1), label="batch")
    number = data.draw(st.sampled_from([signal.SIGINT, signal.SIGTERM]), label="signal")
    whole = fresh()
    with RunFolder(tmp_path_factory.mktemp("whole")) as folder:
        train(whole, folder)
        lines = (folder / METRICS).read_text().splitlines()
    path = tmp_path_factory.mktemp("parts")
    with RunFolder(path) as folder, pytest.MonkeyPatch.context() as patch:
        signalling(kind, after, number, patch)
        with pytest.raises(Interrupted, match="Continue with --resume") as caught:
            train(fresh(), folder)
        assert caught.value.exit_code == 128 + number
    resumed = fresh()
    with RunFolder(path, "resume") as folder:
        train(resumed, folder)
        assert len((folder / METRICS).read_text().splitlines()) == len(lines)
    assert same_state(state_of(whole), state_of(resumed))


def test_a_killed_training_resumes_from_its_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No signal, no goodbye: the checkpoint of the last epoch counts, and metrics behind it are forgotten."""
    whole = fresh()
    stage1(whole, None)
    plain, done = _AccuracyStage.step, []

    class PowerCut(Exception):
        pass

    def step(self: _AccuracyStage, *args: object) -> object:
        done.append(1)
        if len(done) == 15:
            raise PowerCut
        return plain(self, *args)  # type: ignore[arg-type]

    with RunFolder(tmp_path) as folder:
        monkeypatch.setattr(_AccuracyStage, "step", step)
        with pytest.raises(PowerCut):
            stage1(fresh(), folder)
        folder.log({"epoch": "written behind the checkpoint"})
    monkeypatch.setattr(_AccuracyStage, "step", plain)
    resumed = fresh()
    with RunFolder(tmp_path, "resume") as folder:
        stage1(resumed, folder)
        assert "behind" not in (folder / METRICS).read_text()
    assert same_state(state_of(whole), state_of(resumed))


def test_a_finished_stage_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fresh()
    with RunFolder(tmp_path) as folder:
        stage1(whole, folder)
    monkeypatch.setattr(_AccuracyStage, "step", None)
    again = fresh()
    with RunFolder(tmp_path, "resume") as folder:
        stage1(again, folder)
    assert same_state(state_of(whole), state_of(again))


def test_a_signal_while_accuracy_is_checked_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _AccuracyStage.end_of_epoch

    def end_of_epoch(self: _AccuracyStage, epoch: int) -> dict[str, float]:
        if epoch == STAGE1.epochs - 1:
            signal.raise_signal(signal.SIGTERM)
        return plain(self, epoch)

    monkeypatch.setattr(_AccuracyStage, "end_of_epoch", end_of_epoch)
    with RunFolder(tmp_path) as folder, pytest.raises(Interrupted) as caught:
        stage1(fresh(), folder)
    assert caught.value.exit_code == 143


def test_stopping_without_a_folder_says_that_nothing_was_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    signalling(_AccuracyStage, 2, signal.SIGINT, monkeypatch)
    with pytest.raises(Interrupted, match="nothing was saved"):
        stage1(fresh(), None)


def test_a_second_signal_is_obeyed_and_the_handlers_come_back() -> None:
    found = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background starts without it
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            assert interrupts.received == signal.SIGINT
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, found)


# -- what stops a training -------------------------------------------------------------------------------------------


def poisoned(after: int, patch: pytest.MonkeyPatch) -> None:
    """One image of the given batch becomes NaN, behind every check of the data."""
    plain, done = _AccuracyStage.step, []

    def step(self: _AccuracyStage, images: torch.Tensor, labels: torch.Tensor, number: int) -> dict[str, float]:
        done.append(1)
        if len(done) == after:
            images = images.clone()
            images[0] = float("nan")
        return plain(self, images, labels, number)

    patch.setattr(_AccuracyStage, "step", step)


def test_a_nan_loss_stops_naming_layer_and_batch_and_keeps_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(9, monkeypatch)
    with RunFolder(tmp_path) as folder:
        with pytest.raises(TrainingError, match=r"epoch 2, batch 3") as caught:
            stage1(fresh(), folder)
        path = folder / "stage1.checkpoint.safetensors"
        assert str(path) in str(caught.value)
        kept = read_checkpoint(path)
    assert "the loss became nan" in str(caught.value)
    assert kept.progress["epoch"] == 1
    assert all(torch.isfinite(t).all() for t in kept.tensors.values())


def test_the_layer_that_breaks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fresh()
    with torch.no_grad():
        model[4].weight[0, 0, 0, 0] = float("inf")
    with pytest.raises(TrainingError, match=r"epoch 1, batch 1; the weights '4\.weight' hold NaN or infinity"):
        stage1(model, None)
    broken = fresh()
    broken[3].register_forward_hook(lambda m, i, o: o / 0.0)
    with pytest.raises(TrainingError, match="layer '3' gives NaN or infinity"):
        stage1(broken, None)


def test_too_large_a_learning_rate_ends_in_words_and_not_in_nan_weights() -> None:
    model = fresh()
    config = Stage1(epochs=5, batch_size=8, lr=1e30, schedule="constant", holdout=0)
    with pytest.raises(TrainingError, match="Lower the learning rate"):
        train_accuracy(model, image_set(), config, show=False)


def test_a_silent_layer_stops_stage_2_in_words(tmp_path: Path) -> None:
    model = set_maxima_(fresh(), image_set().images)
    with torch.no_grad():
        model[4].weight.zero_()
        model[4].bias.fill_(-1.0)
    with pytest.raises(TrainingError, match=r"stage2: the loss became inf in epoch 1, batch 1; p = "):
        train_latency(model, image_set(), STAGE2, show=False)


@pytest.mark.parametrize("damage", ["cut", "foreign", "other stage", "no progress", "other network", "bad progress"])
def test_a_checkpoint_that_is_no_good_is_refused(tmp_path: Path, damage: str) -> None:
    with RunFolder(tmp_path) as folder:
        stage1(fresh(), folder)
        path = folder / "stage1.checkpoint.safetensors"
    good = read_checkpoint(path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    elif damage == "foreign":
        path.write_bytes(b"PK\x03\x04 something else")
    elif damage == "other stage":
        write_checkpoint(path, Checkpoint(good.tensors, {**good.progress, "stage": "stage2"}))
    elif damage == "no progress":
        write_checkpoint(path, Checkpoint(good.tensors, None))  # type: ignore[arg-type]
    elif damage == "bad progress":
        write_checkpoint(path, Checkpoint(good.tensors, {**good.progress, "colour": 1}))
    model = tiny_cnn(RateNorm, channels=4) if damage == "other network" else fresh()
    with RunFolder(tmp_path, "resume") as folder, pytest.raises(FileFormatError, match=str(tmp_path)):
        stage1(model, folder)


def test_a_full_disk_stops_the_training_with_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, calls = os.fsync, []

    def fsync(descriptor: int) -> None:
        calls.append(1)
        if len(calls) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plain(descriptor)

    with RunFolder(tmp_path) as folder:
        monkeypatch.setattr("ratenorm.io.files.os.fsync", fsync)
        with pytest.raises(RatenormError, match="No space left"):
            stage1(fresh(), folder)
        assert read_checkpoint(folder / "stage1.checkpoint.safetensors").progress["epoch"] >= 1
        assert not list(tmp_path.glob(".*part*"))


def test_layers_keep_their_thresholds_through_a_resume_of_stage_2(tmp_path: Path) -> None:
    model = fresh()
    with RunFolder(tmp_path) as folder:
        stage2(model, folder)
    again = fresh()
    with RunFolder(tmp_path, "resume") as folder:
        stage2(again, folder)
    assert [float(a.threshold) for _, a in rate_norm_layers(model)] == [
        float(b.threshold) for _, b in rate_norm_layers(again)
    ]


@pytest.mark.parametrize(
    "wrong", [{"epoch": -1}, {"batch": -1}, {"logged": -1}, {"batch": 1.0}, {"seconds": -1.0}, {"seconds": math.inf}]
)
def test_a_place_that_no_training_reaches_is_refused(wrong: dict[str, float]) -> None:
    known = Position().to_json()
    assert Position.from_json(dict(known), 3) == Position()
    with pytest.raises(ValueError, match="batch"):
        Position.from_json({**known, **wrong}, 3)
