"""Threshold methods, one a file. Each answers the same question: for each site, a `SiteScale`."""

from __future__ import annotations

from ratenorm.convert.thresholds.base import Method, SiteScale, as_method, from_json, parse
from ratenorm.convert.thresholds.channel_norm import ChannelNorm
from ratenorm.convert.thresholds.diehl import DataNorm, ModelNorm
from ratenorm.convert.thresholds.equal_omega import EqualOmega
from ratenorm.convert.thresholds.gaussian import GaussianThresholds
from ratenorm.convert.thresholds.latency import Latency
from ratenorm.convert.thresholds.local import LocalThresholds, read_out_start
from ratenorm.convert.thresholds.max_norm import MaxNorm
from ratenorm.convert.thresholds.override import Fixed, Override
from ratenorm.convert.thresholds.percentile import Percentile
from ratenorm.convert.thresholds.scaled import Scaled
from ratenorm.convert.thresholds.spike_norm import SpikeNorm
from ratenorm.convert.thresholds.trained import Trained

__all__ = [
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
    "as_method",
    "from_json",
    "parse",
    "read_out_start",
]
