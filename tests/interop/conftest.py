"""Small converted networks that NIR can express."""

from __future__ import annotations

import pytest
import torch
from exported import Residual, converted, plain_cnn

from ratenorm.convert.convert import Conversion


@pytest.fixture(scope="session")
def cnn() -> Conversion:
    return converted(plain_cnn(), (1, 9, 9))


@pytest.fixture(scope="session")
def residual() -> Conversion:
    torch.manual_seed(2)
    return converted(Residual(), (2, 8, 8))
