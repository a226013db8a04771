"""`--json`: every command that prints figures can print them for a program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ratenorm.cli.main import main


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_zoo_and_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert [entry["name"] for entry in printed(capsys, "zoo", "list", "vgg16-*")] == [
        "vgg16-cifar10",
        "vgg16-cifar10-low-latency",
        "vgg16-cifar10-relu",
    ]
    assert {"name", "state", "detail"} <= printed(capsys, "doctor")[0].keys()


@pytest.mark.usefixtures("small_mnist")
def test_a_network_from_file_to_figures(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network, spiking = str(trained_run / "stage1.safetensors"), str(tmp_path / "net.safetensors")
    assert printed(capsys, "convert", network, "--out", spiking)["v0"] == 0.5
    record = printed(capsys, "evaluate", spiking, "--steps", "4", "--out", str(tmp_path / "a"))
    assert len(record["runs"][0]["accuracy"]) == 4
    kept = printed(capsys, "info", str(tmp_path / "a"))  # a file keeps 7 digits
    assert kept["runs"][0]["accuracy"] == pytest.approx(record["runs"][0]["accuracy"], abs=1e-6)
    assert any("populations" in line for line in printed(capsys, "info", spiking)["about"])
    compared = printed(capsys, "compare", network, "--steps", "2", "--methods", "max", "--out", str(tmp_path / "b"))
    assert [run["name"] for run in compared["runs"]] == ["max"]
    found = printed(capsys, "diagnose", network, "--steps", "2", "--images", "20")
    assert found["layers"]
    assert "training images" in found["measured_on"]
    words = ("low-latency", network, "--steps", "2", "--epochs", "1", "--images", "64", "--out", str(tmp_path / "c"))
    assert len(printed(capsys, *words)["trained"]) == 8


@pytest.mark.usefixtures("small_mnist")
def test_a_training(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            assert folder == str(tmp_path / "a" / "tensorboard")

        def add_scalar(self, name: str, value: float, epoch: int) -> None:
            written.append((name, value, epoch))

        def flush(self) -> None:
            pass

    fake = ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    words = ["--out", str(tmp_path / "a"), "--epochs", "1", "--no-stage2", "--holdout", "40", "--tensorboard"]
    assert printed(capsys, "train", *words)["kind"] == "train"
    assert ("stage1/accuracy", 1) in [(name, epoch) for name, _, epoch in written]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(["train", "--out", str(tmp_path / "b"), "--tensorboard"]) == 2
    assert 'pip install "ratenorm[tensorboard]"' in capsys.readouterr().err
