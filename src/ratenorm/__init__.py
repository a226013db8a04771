"""ratenorm: spiking networks that answer fast.

model --train--> Rate-Norm ANN --convert--> SpikingNet --simulate--> SimResult --> record --> report

The public names are loaded when they are first used, so that `import ratenorm` and `ratenorm --help` take no time.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from ratenorm._version import __version__

_PUBLIC: dict[str, tuple[str, ...]] = {
    "ratenorm.calibrators": (
        "Calibrator",
        "ChannelBias",
        "StartPotential",
        "StepBias",
        "calibrate",
    ),
    "ratenorm.calibrators.recipe": (
        "Recipe",
        "parse_recipe",
    ),
    "ratenorm.convert.adapt": (
        "Adaptation",
        "adapt",
    ),
    "ratenorm.convert.calibration": ("Calibration",),
    "ratenorm.convert.convert": (
        "Conversion",
        "convert",
        "normalise_weights",
    ),
    "ratenorm.convert.lower": ("inspect",),
    "ratenorm.convert.support": ("SupportReport",),
    "ratenorm.convert.thresholds": (
        "ChannelNorm",
        "DataNorm",
        "EqualOmega",
        "Fixed",
        "GaussianThresholds",
        "Latency",
        "LocalThresholds",
        "MaxNorm",
        "Method",
        "ModelNorm",
        "Override",
        "Percentile",
        "Scaled",
        "SiteScale",
        "SpikeNorm",
        "Trained",
    ),
    "ratenorm.core.coding": (
        "Constant",
        "Poisson",
    ),
    "ratenorm.core.rate_norm": ("RateNorm",),
    "ratenorm.diagnose": (
        "Diagnosis",
        "diagnose",
    ),
    "ratenorm.errors": (
        "AccuracyWarning",
        "ExchangeWarning",
        "RatenormError",
    ),
    "ratenorm.graph.net": ("SpikingNet",),
    "ratenorm.interop.cite": ("cite",),
    "ratenorm.interop.nir_export": ("export_nir",),
    "ratenorm.interop.onnx_import": ("load_onnx",),
    "ratenorm.interop.nir_import": ("import_nir",),
    "ratenorm.io.networks": (
        "NetworkSpec",
        "load_network",
        "save_network",
    ),
    "ratenorm.io.spiking": (
        "load",
        "save",
    ),
    "ratenorm.report": ("build_report",),
    "ratenorm.simulate.early_exit": (
        "EarlyExit",
        "fit_early_exit",
        "simulate_early_exit",
    ),
    "ratenorm.simulate.evaluate": (
        "Evaluation",
        "evaluate",
    ),
    "ratenorm.simulate.neurobench": ("neurobench_metrics",),
    "ratenorm.simulate.result": ("SimResult",),
    "ratenorm.simulate.simulate": (
        "simulate",
        "stream",
    ),
    "ratenorm.train.config": (
        "Stage1",
        "Stage2",
    ),
    "ratenorm.train.from_relu": ("start_from_relu_",),
    "ratenorm.train.stage1": (
        "TrainingResult",
        "train_accuracy",
    ),
    "ratenorm.train.stage2": ("train_latency",),
    "ratenorm.train.through_time": (
        "ThroughTime",
        "train_through_time",
    ),
    "ratenorm.workflows.evaluation_record": ("record",),
}
_MODULES = {
    "data": "ratenorm.data",
    "interop": "ratenorm.interop",
    "models": "ratenorm.models",
    "zoo": "ratenorm.io.zoo",
}
_WHERE = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = ["__version__", *sorted(_MODULES), *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(_MODULES[name])
    elif name in _WHERE:
        value = getattr(importlib.import_module(_WHERE[name]), name)
    else:
        raise AttributeError(f"module 'ratenorm' has no attribute {name!r}")
    globals()[name] = value
    return value


class _Package(ModuleType):
    """Some functions are called like the subpackage they live in: `ratenorm.convert` is always the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in _WHERE):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
