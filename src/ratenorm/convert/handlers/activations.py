"""Activations: the call sites that become populations of neurons."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from ratenorm.convert.handlers.arguments import REQUIRED, bind, the_input
from ratenorm.convert.lower import Handler, Lowering, ModuleHandler, Ref, Refused
from ratenorm.core.rate_norm import RateNorm
from ratenorm.graph.ops import Activation


def _relu(lo: Lowering, at: fx.Node, x: Any) -> Ref:
    return lo.site(at, the_input(x), Activation(), "ReLU")


def _clip(lo: Lowering, at: fx.Node, x: Any, low: Any, high: Any) -> Ref:
    """max(min(x, high), low). Only low = 0 is a firing rate."""
    if isinstance(low, torch.Tensor) or isinstance(high, torch.Tensor) or low is None or float(low) != 0.0:
        raise Refused(
            f"clips to [{low}, {high}]; a firing rate starts at 0",
            "clip from 0, for example nn.Hardtanh(0, c), nn.ReLU6 or ratenorm.RateNorm",
        )
    if high is None or high == float("inf"):
        return _relu(lo, at, x)
    if not float(high) > 0.0:
        raise Refused(f"clips to [{low}, {high}], which is empty", "give it a positive upper limit")
    ceiling = torch.tensor([float(high)])
    return lo.site(at, the_input(x), Activation(ceiling, ceiling), f"clip to [0, {float(high):g}]")


def _rate_norm(lo: Lowering, at: fx.Node, module: RateNorm, args: tuple[Any, ...]) -> Ref:
    x = the_input(args[0])
    threshold = module.threshold.detach().reshape(-1).clone()
    if len(threshold) > 1:
        threshold = threshold.view(-1, *[1] * (len(x.features) - 1))
    activation = Activation(threshold, None if module.output == "rate" else threshold)
    return lo.site(at, x, activation, f"RateNorm with threshold {float(threshold.mean()):.4g}")


def _clamp(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, min=None, max=None)
    return _clip(lo, at, a["input"], a["min"], a["max"])


def _clamp_min(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, min=None)
    return _clip(lo, at, a["input"], a["min"], None)


def _hardtanh(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, min_val=-1.0, max_val=1.0)
    return _clip(lo, at, a["input"], a["min_val"], a["max_val"])


MODULES: dict[type, ModuleHandler] = {
    nn.ReLU: lambda lo, at, m, args: _relu(lo, at, args[0]),
    nn.ReLU6: lambda lo, at, m, args: _clip(lo, at, args[0], 0.0, 6.0),
    nn.Hardtanh: lambda lo, at, m, args: _clip(lo, at, args[0], m.min_val, m.max_val),
    RateNorm: _rate_norm,
}

_plain_relu: Handler = lambda lo, at, args, kwargs: _relu(lo, at, args[0] if args else kwargs["input"])  # noqa: E731

FUNCTIONS: dict[Any, Handler] = {
    F.relu: _plain_relu,
    torch.relu: _plain_relu,
    torch.relu_: _plain_relu,
    F.relu_: _plain_relu,
    F.relu6: lambda lo, at, args, kwargs: _clip(lo, at, args[0], 0.0, 6.0),
    F.hardtanh: _hardtanh,
    F.hardtanh_: _hardtanh,
    torch.clamp: _clamp,
    torch.clamp_: _clamp,
    torch.clip: _clamp,
    torch.clip_: _clamp,
    torch.clamp_min: _clamp_min,
}

METHODS: dict[Any, Handler] = {
    "relu": _plain_relu,
    "relu_": _plain_relu,
    "clamp": _clamp,
    "clamp_": _clamp,
    "clip": _clamp,
    "clip_": _clamp,
    "clamp_min": _clamp_min,
    "clamp_min_": _clamp_min,
}
