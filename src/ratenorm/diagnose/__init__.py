"""Diagnosis: when a converted network is less accurate than its ANN, which layer and why, found by measurement."""

from ratenorm.diagnose.diagnosis import Diagnosis, Finding, LayerFigures, diagnose

__all__ = ["Diagnosis", "Finding", "LayerFigures", "diagnose"]
