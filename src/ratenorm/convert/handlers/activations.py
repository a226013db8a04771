"""Activations: the call sites that become populations of neurons."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from ratenorm.convert.handlers.arguments import REQUIRED, bind, constant, the_input
from ratenorm.convert.lower import Handler, Lowering, ModuleHandler, Ref, Refused
from ratenorm.convert.remedies import CLIP
from ratenorm.core.rate_norm import RateNorm
from ratenorm.graph.ops import Activation, Affine


def _relu(lo: Lowering, at: fx.Node, x: Any) -> Ref:
    return lo.site(at, the_input(x), Activation(), "ReLU")


def _at_least(lo: Lowering, at: fx.Node, x: Ref, low: Any) -> Ref:
    """max(x, low) = relu(x - low) + low."""
    fixed = constant(lo, at, low)
    if not fixed.any():
        return _relu(lo, at, x)
    above = lo.emit(at, Affine(shift=-fixed), x, part="above", shape=x.features)
    return lo.emit(at, Affine(shift=fixed), _relu(lo, at, above), part="back", shape=x.features)


def _at_most(lo: Lowering, at: fx.Node, x: Ref, high: Any) -> Ref:
    """min(x, high) = high - relu(high - x); behind a ReLU it is a clip."""
    fixed = constant(lo, at, high)
    if lo.behind_relu(x) != x and fixed.numel() == 1 and float(fixed) > 0.0:
        return _clip(lo, at, x, 0.0, float(fixed))
    minus = -torch.ones_like(fixed)
    below = lo.emit(at, Affine(minus, fixed), x, part="below", shape=x.features)
    return lo.emit(at, Affine(minus, fixed), _relu(lo, at, below), part="back", shape=x.features)


def _clip(lo: Lowering, at: fx.Node, x: Any, low: Any, high: Any) -> Ref:
    """max(min(x, high), low). Only low = 0 is a firing rate."""
    if low is None and high is not None:
        return _at_most(lo, at, the_input(x), high)
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
    below = lo.behind_relu(the_input(x))
    return lo.site(at, below, Activation(ceiling, ceiling), f"clip to [0, {float(high):g}]")


def _leaky(lo: Lowering, at: fx.Node, x: Any, slope: Any) -> Ref:
    if float(slope) != 0.0:
        raise Refused(f"is a LeakyReLU of slope {float(slope):g}; a firing rate starts at 0", CLIP)
    return _relu(lo, at, x)


def _threshold(lo: Lowering, at: fx.Node, x: Any, threshold: Any, value: Any) -> Ref:
    if (float(threshold), float(value)) != (0.0, 0.0):
        raise Refused(f"gives {float(value):g} up to {float(threshold):g} and jumps there", CLIP)
    return _relu(lo, at, x)


def _leaky_function(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, negative_slope=0.01)
    return _leaky(lo, at, a["input"], a["negative_slope"])


def _threshold_function(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    return _threshold(lo, at, *bind(args, kwargs, input=REQUIRED, threshold=REQUIRED, value=REQUIRED).values())


def _larger(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    return _at_least(lo, at, *_value_and_bound(args, kwargs))


def _smaller(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    return _at_most(lo, at, *_value_and_bound(args, kwargs))


def _value_and_bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Ref, torch.Tensor]:
    """The operands of maximum and minimum, of which one must be fixed."""
    a, b = bind(args, kwargs, input=REQUIRED, other=None).values()
    found = [v for v in (a, b) if isinstance(v, Ref)]
    bound = [v for v in (a, b) if isinstance(v, torch.Tensor)]
    if len(found) != 1 or len(bound) != 1:
        raise Refused(
            "compares two values of the network, or picks one along a dimension",
            "compare with fixed numbers; for the largest of a window use max-pooling or amax over space",
        )
    return found[0], bound[0]


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


def _clamp_max(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, max=None)
    return _clip(lo, at, a["input"], None, a["max"])


def _hardtanh(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, min_val=-1.0, max_val=1.0)
    return _clip(lo, at, a["input"], a["min_val"], a["max_val"])


MODULES: dict[type, ModuleHandler] = {
    nn.ReLU: lambda lo, at, m, args: _relu(lo, at, args[0]),
    nn.ReLU6: lambda lo, at, m, args: _clip(lo, at, args[0], 0.0, 6.0),
    nn.Hardtanh: lambda lo, at, m, args: _clip(lo, at, args[0], m.min_val, m.max_val),
    nn.LeakyReLU: lambda lo, at, m, args: _leaky(lo, at, args[0], m.negative_slope),
    nn.Threshold: lambda lo, at, m, args: _threshold(lo, at, args[0], m.threshold, m.value),
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
    torch.clamp_min_: _clamp_min,
    torch.clamp_max: _clamp_max,
    torch.clamp_max_: _clamp_max,
    torch.maximum: _larger,
    torch.max: _larger,
    torch.fmax: _larger,
    torch.minimum: _smaller,
    torch.min: _smaller,
    torch.fmin: _smaller,
    F.leaky_relu: _leaky_function,
    F.threshold: _threshold_function,
    torch.threshold: _threshold_function,
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
    "clamp_max": _clamp_max,
    "clamp_max_": _clamp_max,
    "maximum": _larger,
    "max": _larger,
    "minimum": _smaller,
    "min": _smaller,
}
