"""A reproduction at a tiny scale, made once: its page, its figures and the zoo are all tested on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratenorm.data import ImageSet
from ratenorm.experiments.presets import BY_NAME
from ratenorm.experiments.reproduce import Scale, reproduce
from ratenorm.experiments.results_page import write_page

TINY = Scale(train_images=200, test_images=20, epochs=1, steps=8)


@pytest.fixture(scope="session")
def tiny_results(tmp_path_factory: pytest.TempPathFactory, digits: dict[str, ImageSet]) -> Path:
    """The CNN-7 preset, run once on the little set: `work` and `results`."""
    place = tmp_path_factory.mktemp("reproduce")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratenorm.experiments.training.load", lambda name, split, root=None: digits[split])
        reproduce(BY_NAME["cnn7-mnist"], 0, place / "work", place / "results", TINY, None, lambda text: None)
        write_page(place / "results")
    return place


@pytest.fixture
def tiny() -> Scale:
    return TINY
