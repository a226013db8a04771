"""ratenorm: spiking networks that answer fast.

model --train--> Rate-Norm ANN --convert--> SpikingNet --engine--> SimResult --> record --> report
"""

from ratenorm import _starting as _starting  # isort: skip  (before all that takes long)
from ratenorm import data, models
from ratenorm._version import __version__
from ratenorm.calibrators import Calibrator, ChannelBias, StartPotential, StepBias, calibrate
from ratenorm.convert.convert import Conversion, convert, normalise_weights
from ratenorm.convert.lower import inspect
from ratenorm.convert.thresholds import (
    ChannelNorm,
    DataNorm,
    EqualOmega,
    Fixed,
    GaussianThresholds,
    Latency,
    LocalThresholds,
    MaxNorm,
    Method,
    ModelNorm,
    Override,
    Percentile,
    Scaled,
    SiteScale,
    SpikeNorm,
    Trained,
)
from ratenorm.core.coding import Constant, Poisson
from ratenorm.core.rate_norm import RateNorm
from ratenorm.diagnose import Diagnosis, diagnose
from ratenorm.errors import RatenormError
from ratenorm.graph.net import SpikingNet
from ratenorm.io import zoo
from ratenorm.io.networks import NetworkSpec, load_network, save_network
from ratenorm.io.spiking import load, save
from ratenorm.simulate.evaluate import Evaluation, evaluate
from ratenorm.simulate.result import SimResult
from ratenorm.simulate.simulate import simulate, stream
from ratenorm.train.config import Stage1, Stage2
from ratenorm.train.from_relu import start_from_relu_
from ratenorm.train.stage1 import train_accuracy
from ratenorm.train.stage2 import train_latency
from ratenorm.train.through_time import ThroughTime, train_through_time

__all__ = [
    "Calibrator",
    "ChannelBias",
    "ChannelNorm",
    "Constant",
    "Conversion",
    "DataNorm",
    "Diagnosis",
    "EqualOmega",
    "Evaluation",
    "Fixed",
    "GaussianThresholds",
    "Latency",
    "LocalThresholds",
    "MaxNorm",
    "Method",
    "ModelNorm",
    "NetworkSpec",
    "Override",
    "Percentile",
    "Poisson",
    "RateNorm",
    "RatenormError",
    "Scaled",
    "SimResult",
    "SiteScale",
    "SpikeNorm",
    "SpikingNet",
    "Stage1",
    "Stage2",
    "StartPotential",
    "StepBias",
    "ThroughTime",
    "Trained",
    "__version__",
    "calibrate",
    "convert",
    "data",
    "diagnose",
    "evaluate",
    "inspect",
    "load",
    "load_network",
    "models",
    "normalise_weights",
    "save",
    "save_network",
    "simulate",
    "start_from_relu_",
    "stream",
    "train_accuracy",
    "train_latency",
    "train_through_time",
    "zoo",
]
