"""Layers with weights, BatchNorm, padding, and what does nothing in inference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ratenorm.convert.handlers.arguments import REQUIRED, bind, per_dimension, the_input
from ratenorm.convert.lower import Handler, Lowering, ModuleHandler, Ref, Refused
from ratenorm.graph.ops import Affine, Conv, Linear


def _fixed(value: Any, what: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise Refused(f"has a {what} that depends on the input", f"use a fixed {what}")
    return value.detach().clone()


def _conv(
    lo: Lowering,
    at: fx.Node,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    mode: str = "zeros",
) -> Ref:
    weight = _fixed(weight, "weight")
    space = weight.ndim - 2
    dilation = per_dimension(dilation, space)
    sides = _sides(padding, dilation, tuple(weight.shape[2:]))
    bias = None if bias is None else _fixed(bias, "bias")
    op = Conv(
        weight,
        bias,
        per_dimension(stride, space),
        sides,
        dilation,
        int(groups),
        "constant" if mode == "zeros" else mode,
    )
    lo.note(at, "layer", f"convolution {tuple(weight.shape)}")
    return lo.emit(at, op, the_input(x))


def _sides(padding: Any, dilation: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Padding as F.pad takes it: (before, after) of each dimension, from the last to the first."""
    if padding == "valid":
        padding = 0
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        pairs = [(t // 2, t - t // 2) for t in total]  # torch puts the odd one behind
    else:
        pairs = [(p, p) for p in per_dimension(padding, len(kernel))]
    return tuple(side for pair in reversed(pairs) for side in pair)


def _conv_module(lo: Lowering, at: fx.Node, m: Any, args: tuple[Any, ...]) -> Ref:
    return _conv(lo, at, args[0], m.weight, m.bias, m.stride, m.padding, m.dilation, m.groups, m.padding_mode)


def _conv_function(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, weight=REQUIRED, bias=None, stride=1, padding=0, dilation=1, groups=1)
    return _conv(lo, at, a["input"], a["weight"], a["bias"], a["stride"], a["padding"], a["dilation"], a["groups"])


def _linear(lo: Lowering, at: fx.Node, x: Any, weight: Any, bias: Any) -> Ref:
    op = Linear(_fixed(weight, "weight"), None if bias is None else _fixed(bias, "bias"))
    lo.note(at, "layer", f"linear {tuple(op.weight.shape)}")
    return lo.emit(at, op, the_input(x))


def _linear_function(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, weight=REQUIRED, bias=None)
    return _linear(lo, at, a["input"], a["weight"], a["bias"])


def _batch_norm(lo: Lowering, at: fx.Node, x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float) -> Ref:
    """y = weight (x - mean) / sqrt(var + eps) + bias, computed in double precision, stored as scale and shift."""
    ref = the_input(x)
    if mean is None or var is None:
        raise Refused("is a BatchNorm without running statistics", "train it with track_running_stats=True")
    scale = torch.rsqrt(var.detach().double() + eps)
    if weight is not None:
        scale = scale * weight.detach().double()
    shift = -mean.detach().double() * scale
    if bias is not None:
        shift = shift + bias.detach().double()
    form = (-1, *[1] * (len(ref.features) - 1))
    lo.note(at, "fold", "BatchNorm becomes a scale and a shift, folded into the layer before or behind it")
    return lo.emit(at, Affine(scale.to(mean.dtype).view(form), shift.to(mean.dtype).view(form)), ref)


def _batch_norm_module(lo: Lowering, at: fx.Node, m: Any, args: tuple[Any, ...]) -> Ref:
    return _batch_norm(lo, at, args[0], m.running_mean, m.running_var, m.weight, m.bias, m.eps)


def _batch_norm_function(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(
        args,
        kwargs,
        input=REQUIRED,
        running_mean=None,
        running_var=None,
        weight=None,
        bias=None,
        training=False,
        momentum=0.1,
        eps=1e-5,
    )
    if a["training"]:
        raise Refused("is a BatchNorm in training mode", "pass training=self.training and convert in evaluation mode")
    return _batch_norm(lo, at, a["input"], a["running_mean"], a["running_var"], a["weight"], a["bias"], a["eps"])


def _nothing(lo: Lowering, at: fx.Node, x: Any) -> Ref:
    lo.note(at, "dropped", "does nothing in inference")
    return the_input(x)


def _dropout_function(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, p=0.5, training=True)
    if a["training"] and a["p"] > 0:
        raise Refused("is a dropout that stays active in inference", "pass training=self.training")
    return _nothing(lo, at, a["input"])


def _pad(lo: Lowering, at: fx.Node, x: Any, sides: Any, mode: str, value: Any) -> Ref:
    """Padding by itself is a convolution with a 1 x 1 identity for each channel."""
    ref = the_input(x)
    sides = tuple(int(s) for s in sides)
    space = len(sides) // 2
    if value not in (None, 0, 0.0) or len(ref.features) != space + 1 or space not in (1, 2):
        raise Refused(f"pads {ref.features} by {sides} with {value}", "pad one or two dimensions of space with zeros")
    channels = ref.features[0]
    op = Conv(torch.ones(channels, 1, *[1] * space), None, (1,) * space, sides, (1,) * space, channels, mode)
    lo.note(at, "replaced", "padding becomes an identity convolution")
    return lo.emit(at, op, ref)


def _pad_function(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, pad=REQUIRED, mode="constant", value=None)
    return _pad(lo, at, a["input"], a["pad"], a["mode"], a["value"])


_ignored: ModuleHandler = lambda lo, at, m, args: _nothing(lo, at, args[0])  # noqa: E731

MODULES: dict[type, ModuleHandler] = {
    nn.Conv1d: _conv_module,
    nn.Conv2d: _conv_module,
    nn.Linear: lambda lo, at, m, args: _linear(lo, at, args[0], m.weight, m.bias),
    nn.BatchNorm1d: _batch_norm_module,
    nn.BatchNorm2d: _batch_norm_module,
    nn.SyncBatchNorm: _batch_norm_module,
    nn.Dropout: _ignored,
    nn.Dropout1d: _ignored,
    nn.Dropout2d: _ignored,
    nn.AlphaDropout: _ignored,
    nn.Identity: _ignored,
    nn.ZeroPad1d: lambda lo, at, m, args: _pad(lo, at, args[0], m.padding, "constant", 0),
    nn.ZeroPad2d: lambda lo, at, m, args: _pad(lo, at, args[0], m.padding, "constant", 0),
    nn.ReflectionPad2d: lambda lo, at, m, args: _pad(lo, at, args[0], m.padding, "reflect", 0),
    nn.ReplicationPad2d: lambda lo, at, m, args: _pad(lo, at, args[0], m.padding, "replicate", 0),
}

FUNCTIONS: dict[Any, Handler] = {
    F.conv1d: _conv_function,
    F.conv2d: _conv_function,
    torch.conv1d: _conv_function,
    torch.conv2d: _conv_function,
    F.linear: _linear_function,
    F.batch_norm: _batch_norm_function,
    F.dropout: _dropout_function,
    F.dropout2d: _dropout_function,
    F.pad: _pad_function,
}
