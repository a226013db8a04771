"""What every test shares: one thread a process (networks are tiny, workers are many), reproducible hypothesis."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite", deadline=None, max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("suite"), derandomize=False, max_examples=200)
settings.load_profile("suite")

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Tests may draw from torch's global generator; none depends on what ran before."""
    torch.manual_seed(0)
