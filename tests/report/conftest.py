"""Records to report on: made up, because no test should wait for a simulation."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Loaded by path: tests are no package, and the generator is shared with tests/test_records.py.
_spec = importlib.util.spec_from_file_location("synthetic_records", Path(__file__).with_name("synthetic.py"))
assert _spec is not None
assert _spec.loader is not None
synthetic = importlib.util.module_from_spec(_spec)
sys.modules["synthetic_records"] = synthetic
_spec.loader.exec_module(synthetic)


@pytest.fixture(scope="session")
def make_record() -> Callable[..., dict[str, Any]]:
    return synthetic.make_record


@pytest.fixture
def small(make_record: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Two runs, two layers, eight steps, one image: every part of a record, quick to draw."""
    return make_record(steps=8, methods=2, layers=2, examples=1)
