"""What can simulate a network."""

from __future__ import annotations

from typing import Literal

EngineName = Literal["auto", "dense", "event"]
