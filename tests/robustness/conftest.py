"""The torture of benchmarks/, with small counts, in processes of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))


@pytest.fixture
def environment() -> dict[str, str]:
    """For processes started by a test: they find ratenorm and the torture, and use one thread."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
