"""A training in a process of its own, stopped from outside: the right exit code, and a resume to identical files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image

from ratenorm.cli.main import main

WORDS = ["--epochs", "15", "--batch-size", "8", "--holdout", "10", "--lr", "0.02"]


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "letters"
    g = torch.Generator().manual_seed(0)
    for label in ("a", "b"):
        (folder / label).mkdir(parents=True)
        for i in range(25):
            pixels = torch.randint(0, 120, (28, 28), generator=g).byte() + (100 if label == "b" else 0)
            Image.fromarray(pixels.numpy()).save(folder / label / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def unstopped(letters: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unstopped") / "run"
    assert main(["train", "--out", str(out), "--data", str(letters), *WORDS]) == 0
    return out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_from_outside_and_resumed(
    number: signal.Signals, letters: Path, unstopped: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["train", "--out", str(out), "--data", str(letters), *WORDS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "ratenorm", *words], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        deadline = time.monotonic() + 120
        while not (out / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert "Continue with --resume" in err
    assert not (out / "stage1.safetensors").exists()
    assert main([*words, "--resume"]) == 0
    for name in ("stage1.safetensors", "stage2.safetensors"):
        assert (out / name).read_bytes() == (unstopped / name).read_bytes()
    lines = (out / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == len((unstopped / "metrics.jsonl").read_text().splitlines())
