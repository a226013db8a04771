"""The public names of ratenorm, for type checkers and editors; `__init__.py` loads them when they are used."""

from ratenorm import data as data
from ratenorm import interop as interop
from ratenorm import models as models
from ratenorm._version import __version__ as __version__
from ratenorm.calibrators import Calibrator as Calibrator
from ratenorm.calibrators import ChannelBias as ChannelBias
from ratenorm.calibrators import StartPotential as StartPotential
from ratenorm.calibrators import StepBias as StepBias
from ratenorm.calibrators import calibrate as calibrate
from ratenorm.calibrators.recipe import Recipe as Recipe
from ratenorm.calibrators.recipe import parse_recipe as parse_recipe
from ratenorm.convert.adapt import Adaptation as Adaptation
from ratenorm.convert.adapt import adapt as adapt
from ratenorm.convert.calibration import Calibration as Calibration
from ratenorm.convert.convert import Conversion as Conversion
from ratenorm.convert.convert import convert as convert
from ratenorm.convert.convert import normalise_weights as normalise_weights
from ratenorm.convert.lower import inspect as inspect
from ratenorm.convert.support import SupportReport as SupportReport
from ratenorm.convert.thresholds import ChannelNorm as ChannelNorm
from ratenorm.convert.thresholds import DataNorm as DataNorm
from ratenorm.convert.thresholds import EqualOmega as EqualOmega
from ratenorm.convert.thresholds import Fixed as Fixed
from ratenorm.convert.thresholds import GaussianThresholds as GaussianThresholds
from ratenorm.convert.thresholds import Latency as Latency
from ratenorm.convert.thresholds import LocalThresholds as LocalThresholds
from ratenorm.convert.thresholds import MaxNorm as MaxNorm
from ratenorm.convert.thresholds import Method as Method
from ratenorm.convert.thresholds import ModelNorm as ModelNorm
from ratenorm.convert.thresholds import Override as Override
from ratenorm.convert.thresholds import Percentile as Percentile
from ratenorm.convert.thresholds import Scaled as Scaled
from ratenorm.convert.thresholds import SiteScale as SiteScale
from ratenorm.convert.thresholds import SpikeNorm as SpikeNorm
from ratenorm.convert.thresholds import Trained as Trained
from ratenorm.core.coding import Constant as Constant
from ratenorm.core.coding import Poisson as Poisson
from ratenorm.core.rate_norm import RateNorm as RateNorm
from ratenorm.diagnose import Diagnosis as Diagnosis
from ratenorm.diagnose import diagnose as diagnose
from ratenorm.errors import AccuracyWarning as AccuracyWarning
from ratenorm.errors import ExchangeWarning as ExchangeWarning
from ratenorm.errors import RatenormError as RatenormError
from ratenorm.graph.net import SpikingNet as SpikingNet
from ratenorm.interop.cite import cite as cite
from ratenorm.interop.nir_export import export_nir as export_nir
from ratenorm.interop.nir_import import import_nir as import_nir
from ratenorm.interop.onnx_import import load_onnx as load_onnx
from ratenorm.io import zoo as zoo
from ratenorm.io.networks import NetworkSpec as NetworkSpec
from ratenorm.io.networks import load_network as load_network
from ratenorm.io.networks import save_network as save_network
from ratenorm.io.spiking import load as load
from ratenorm.io.spiking import save as save
from ratenorm.report import build_report as build_report
from ratenorm.simulate.early_exit import EarlyExit as EarlyExit
from ratenorm.simulate.early_exit import fit_early_exit as fit_early_exit
from ratenorm.simulate.early_exit import simulate_early_exit as simulate_early_exit
from ratenorm.simulate.evaluate import Evaluation as Evaluation
from ratenorm.simulate.evaluate import evaluate as evaluate
from ratenorm.simulate.neurobench import neurobench_metrics as neurobench_metrics
from ratenorm.simulate.result import SimResult as SimResult
from ratenorm.simulate.simulate import simulate as simulate
from ratenorm.simulate.simulate import stream as stream
from ratenorm.train.config import Stage1 as Stage1
from ratenorm.train.config import Stage2 as Stage2
from ratenorm.train.from_relu import start_from_relu_ as start_from_relu_
from ratenorm.train.stage1 import TrainingResult as TrainingResult
from ratenorm.train.stage1 import train_accuracy as train_accuracy
from ratenorm.train.stage2 import train_latency as train_latency
from ratenorm.train.through_time import ThroughTime as ThroughTime
from ratenorm.train.through_time import train_through_time as train_through_time

__all__ = [
    "AccuracyWarning",
    "Calibration",
    "Calibrator",
    "ChannelBias",
    "ChannelNorm",
    "Constant",
    "Conversion",
    "DataNorm",
    "Diagnosis",
    "EarlyExit",
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
    "Recipe",
    "Scaled",
    "SimResult",
    "SiteScale",
    "SpikeNorm",
    "SpikingNet",
    "Stage1",
    "Stage2",
    "StartPotential",
    "StepBias",
    "SupportReport",
    "ThroughTime",
    "Trained",
    "TrainingResult",
    "__version__",
    "calibrate",
    "convert",
    "data",
    "diagnose",
    "evaluate",
    "fit_early_exit",
    "inspect",
    "load",
    "load_network",
    "models",
    "normalise_weights",
    "parse_recipe",
    "save",
    "save_network",
    "simulate",
    "simulate_early_exit",
    "start_from_relu_",
    "stream",
    "train_accuracy",
    "train_latency",
    "train_through_time",
    "zoo",
]
from ratenorm.workflows.evaluation_record import record as record
