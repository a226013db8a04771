"""A reproduction at a tiny scale, made once: its page, its figures and the zoo are all tested on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paper.networks import Networks
from paper.presets import BY_NAME
from paper.reproduce import reproduce
from paper.results_page import write_page
from paper.scale import Scale
from paper.zoo_entries import add_to_zoo
from ratenorm.data import ImageSet

TINY = Scale(train_images=200, test_images=20, epochs=1, steps=8)


@pytest.fixture(scope="session")
def tiny_results(tmp_path_factory: pytest.TempPathFactory, digits: dict[str, ImageSet]) -> Path:
    """The CNN-7 preset, run once on the little set: `work` and `results`."""
    place = tmp_path_factory.mktemp("reproduce")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratenorm.workflows.data.load", lambda name, split, root=None: digits[split])
        reproduce(Networks(BY_NAME["cnn7-mnist"], 0, place / "work", TINY), place / "results", lambda text: None)
        write_page(place / "results")
    return place


@pytest.fixture(scope="session")
def tiny_zoo(tiny_results: Path, tmp_path_factory: pytest.TempPathFactory, digits: dict[str, ImageSet]) -> Path:
    """A zoo with the two networks of the tiny reproduction."""
    folder = tmp_path_factory.mktemp("zoo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratenorm.workflows.data.load", lambda name, split, root=None: digits[split])
        add_to_zoo(Networks(BY_NAME["cnn7-mnist"], 0, tiny_results / "work", TINY), folder, 4, lambda text: None)
    return folder


@pytest.fixture
def tiny() -> Scale:
    return TINY
