"""Calibration after conversion: a few hundred unlabelled images make the first steps accurate. One method a file."""

from ratenorm.calibrators.base import Calibrator
from ratenorm.calibrators.calibrate import calibrate
from ratenorm.calibrators.channel_bias import ChannelBias
from ratenorm.calibrators.start_potential import StartPotential
from ratenorm.calibrators.step_bias import StepBias

__all__ = ["Calibrator", "ChannelBias", "StartPotential", "StepBias", "calibrate"]
