"""What every test shares: one thread a process (networks are tiny, workers are many), reproducible hypothesis."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from ratenorm.data import ImageSet, load

pytest_plugins = ["local_server"]

settings.register_profile(
    "suite", deadline=None, max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("suite"), derandomize=False, max_examples=200)
settings.load_profile("suite")

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _signals() -> None:
    """A shell without job control starts its background jobs with Ctrl-C ignored, and processes inherit that.

    Tests that send SIGINT failed there now and then, as if the machine had been too busy.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Tests may draw from torch's global generator; none depends on what ran before."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def digits() -> dict[str, ImageSet]:
    """A little of MNIST: 360 images to train on, 60 to test."""
    images = load("mnist", "test")
    return {"train": images.subset(range(360)), "test": images.subset(range(360, 420))}


@pytest.fixture
def small_mnist(digits: dict[str, ImageSet], monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments and commands see the little set under the name of the large one."""
    monkeypatch.setattr("ratenorm.workflows.data.load", lambda name, split, root=None: digits[split])


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory, digits: dict[str, ImageSet]) -> Path:
    """A run folder left by `ratenorm train`: cnn7, both stages, on the little set."""
    from ratenorm.cli.main import main

    out = tmp_path_factory.mktemp("runs") / "trained"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratenorm.workflows.data.load", lambda name, split, root=None: digits[split])
        words = ["--epochs", "3", "--batch-size", "32", "--holdout", "40", "--lr", "0.05", "--lambda", "0.05"]
        assert main(["train", "--out", str(out), *words]) == 0
    return out
