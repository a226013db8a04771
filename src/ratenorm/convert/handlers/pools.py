"""Pooling and upsampling."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from ratenorm.convert.handlers.arguments import REQUIRED, bind, per_dimension, the_input
from ratenorm.convert.lower import Handler, Lowering, ModuleHandler, Ref, Refused
from ratenorm.graph.ops import AdaptiveAvgPool, Affine, AvgPool, MaxPool, Permute, Reshape, Upsample


def _average(
    lo: Lowering,
    at: fx.Node,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Any = None,
) -> Ref:
    ref = the_input(x)
    space = len(ref.features) - 1
    if divisor is not None:
        raise Refused("pools with divisor_override", "scale by a constant behind the pooling instead")
    kernel = per_dimension(kernel, space)
    stride = kernel if stride is None or stride == [] else per_dimension(stride, space)
    lo.note(at, "layer", f"average pooling {kernel}")
    return lo.emit(at, AvgPool(kernel, stride, per_dimension(padding, space), ceil_mode, count_include_pad), ref)


def _average_function(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(
        args,
        kwargs,
        input=REQUIRED,
        kernel_size=REQUIRED,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    )
    return _average(
        lo,
        at,
        a["input"],
        a["kernel_size"],
        a["stride"],
        a["padding"],
        a["ceil_mode"],
        a["count_include_pad"],
        a["divisor_override"],
    )


def _adaptive(lo: Lowering, at: fx.Node, x: Any) -> Ref:
    """Where the windows share the input evenly it is plain average pooling."""
    ref = the_input(x)
    before, after = ref.features[1:], tuple(lo.value(at).shape[2:])
    lo.note(at, "layer", f"average pooling to {after}")
    if all(b % a == 0 for b, a in zip(before, after, strict=True)):
        window = tuple(b // a for b, a in zip(before, after, strict=True))
        return lo.emit(at, AvgPool(window, window, (0,) * len(window)), ref)
    return lo.emit(at, AdaptiveAvgPool(after), ref)


def _adaptive_function(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    return _adaptive(lo, at, bind(args, kwargs, input=REQUIRED)["input"])


def _maximum(
    lo: Lowering,
    at: fx.Node,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Ref:
    ref = the_input(x)
    if return_indices:
        raise Refused("returns the indices of max-pooling", "use return_indices=False; unpooling has no spiking form")
    space = len(ref.features) - 1
    kernel = per_dimension(kernel, space)
    stride = kernel if stride is None or stride == [] else per_dimension(stride, space)
    padding, dilation = per_dimension(padding, space), per_dimension(dilation, space)
    if lo.max_pool == "average":
        if any(d != 1 for d in dilation):
            raise Refused("is a dilated max-pooling, which average pooling cannot replace", "use max_pool='gated'")
        lo.note(at, "replaced", f"max-pooling {kernel} becomes average pooling: the network changes, fine-tune it")
        return lo.emit(at, AvgPool(kernel, stride, padding, ceil_mode, False), ref)
    lo.note(at, "layer", f"max-pooling {kernel}: a spike passes if it raises the largest count of its window")
    return lo.emit(at, MaxPool(kernel, stride, padding, dilation, ceil_mode), ref)


def _maximum_function(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(
        args,
        kwargs,
        input=REQUIRED,
        kernel_size=REQUIRED,
        stride=None,
        padding=0,
        dilation=1,
        ceil_mode=False,
        return_indices=False,
    )
    return _maximum(lo, at, *a.values())


def _adaptive_maximum(lo: Lowering, at: fx.Node, x: Any, return_indices: bool) -> Ref:
    """Where the windows share the input evenly it is plain max-pooling."""
    ref = the_input(x)
    out = lo.value(at)
    if return_indices or not isinstance(out, torch.Tensor):
        raise Refused("returns the indices of max-pooling", "use return_indices=False; unpooling has no spiking form")
    before, after = ref.features[1:], tuple(out.shape[2:])
    if any(b % a for b, a in zip(before, after, strict=True)):
        raise Refused(f"pools {before} to {after}, whose windows overlap", "pool to sizes that divide the map evenly")
    window = tuple(b // a for b, a in zip(before, after, strict=True))
    return _maximum(lo, at, ref, window, window, 0, 1, False, False)


def _adaptive_maximum_function(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, output_size=REQUIRED, return_indices=False)
    return _adaptive_maximum(lo, at, a["input"], a["return_indices"])


def _largest(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    """amax over all of space: one max-pooling."""
    a = bind(args, kwargs, input=REQUIRED, dim=())
    ref = the_input(a["input"])
    ndim, dim = len(ref.shape), a["dim"]
    dims = sorted({d % ndim for d in ([dim] if isinstance(dim, int) else dim)})
    if ndim not in (3, 4) or dims != list(range(2, ndim)):
        raise Refused(
            f"takes the largest over dimensions {tuple(dims)}", "take it over all of space, or use max-pooling"
        )
    window = ref.features[1:]
    lo.note(at, "layer", f"max-pooling {window}: a spike passes if it raises the largest count of its window")
    op = MaxPool(window, window, (0,) * len(window), (1,) * len(window))
    one = (ref.features[0], *[1] * len(window))
    if lo.max_pool == "average":
        raise Refused("takes the largest over space, which max_pool='average' does not replace", "use max_pool='gated'")
    pooled = lo.emit(at, op, ref, part="pool", shape=one)
    return lo.emit(at, Reshape(tuple(lo.value(at).shape[1:])), pooled)


def _sum(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    """The sum over some dimensions: the mean, times their number."""
    a = bind(args, kwargs, input=REQUIRED, dim=None)
    ref = the_input(a["input"])
    mean = _mean(lo, at, (ref,), {"dim": a["dim"]})
    count = torch.Size(ref.features).numel() / torch.Size(mean.features).numel()
    return lo.emit(
        at, Affine(scale=torch.tensor([count], dtype=lo.value(at).dtype)), mean, part="sum", shape=mean.features
    )


def _mean(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    """The mean over some dimensions: they are moved behind the others and pooled."""
    a = bind(args, kwargs, input=REQUIRED, dim=None)
    ref = the_input(a["input"])
    ndim = len(ref.shape)
    dim = range(1, ndim) if a["dim"] is None else a["dim"]
    dims = sorted({d % ndim for d in ([dim] if isinstance(dim, int) else dim)})
    if 0 in dims:
        raise Refused("averages over the batch", "average over channels or space only")
    out = tuple(lo.value(at).shape[1:])
    lo.note(at, "layer", f"mean over dimensions {tuple(dims)}")
    if dims == [2, 3] and ndim == 4:
        window = ref.features[1:]
        pooled = lo.emit(at, AvgPool(window, window, (0, 0)), ref, part="pool", shape=(ref.features[0], 1, 1))
        return pooled if out == pooled.features else lo.emit(at, Reshape(out), pooled)
    others = [d for d in range(1, ndim) if d not in dims]
    if others + dims != list(range(1, ndim)):
        order = (0, *others, *dims)
        ref = lo.emit(at, Permute(order), ref, part="permute", shape=tuple(ref.shape[d] for d in order[1:]))
    rows = torch.Size(ref.features[: len(others)]).numel()
    size = torch.Size(ref.features[len(others) :]).numel()
    flat = lo.emit(at, Reshape((rows, size)), ref, part="flat", shape=(rows, size))
    pooled = lo.emit(at, AvgPool((size,), (size,), (0,)), flat, part="pool", shape=(rows, 1))
    return lo.emit(at, Reshape(out), pooled)


def _upsample(lo: Lowering, at: fx.Node, x: Any, mode: str) -> Ref:
    ref = the_input(x)
    if mode != "nearest":
        raise Refused(f"upsamples with mode {mode!r}", "use nearest-neighbour upsampling")
    lo.note(at, "layer", "nearest-neighbour upsampling")
    return lo.emit(at, Upsample(tuple(lo.value(at).shape[2:])), ref)


def _interpolate(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, size=None, scale_factor=None, mode="nearest")
    return _upsample(lo, at, a["input"], a["mode"])


_average_module: ModuleHandler = lambda lo, at, m, args: _average(  # noqa: E731
    lo,
    at,
    args[0],
    m.kernel_size,
    m.stride,
    m.padding,
    m.ceil_mode,
    m.count_include_pad,
    getattr(m, "divisor_override", None),
)
_adaptive_module: ModuleHandler = lambda lo, at, m, args: _adaptive(lo, at, args[0])  # noqa: E731
_maximum_module: ModuleHandler = lambda lo, at, m, args: _maximum(  # noqa: E731
    lo, at, args[0], m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode, m.return_indices
)

MODULES: dict[type, ModuleHandler] = {
    nn.AvgPool1d: _average_module,
    nn.AvgPool2d: _average_module,
    nn.AdaptiveAvgPool1d: _adaptive_module,
    nn.AdaptiveAvgPool2d: _adaptive_module,
    nn.AdaptiveMaxPool1d: lambda lo, at, m, args: _adaptive_maximum(lo, at, args[0], m.return_indices),
    nn.AdaptiveMaxPool2d: lambda lo, at, m, args: _adaptive_maximum(lo, at, args[0], m.return_indices),
    nn.MaxPool1d: _maximum_module,
    nn.MaxPool2d: _maximum_module,
    nn.Upsample: lambda lo, at, m, args: _upsample(lo, at, args[0], m.mode),
    nn.UpsamplingNearest2d: lambda lo, at, m, args: _upsample(lo, at, args[0], "nearest"),
}

FUNCTIONS: dict[Any, Handler] = {
    F.avg_pool1d: _average_function,
    F.avg_pool2d: _average_function,
    F.adaptive_avg_pool1d: _adaptive_function,
    F.adaptive_avg_pool2d: _adaptive_function,
    F.max_pool1d: _maximum_function,
    F.max_pool2d: _maximum_function,
    torch.max_pool1d: _maximum_function,
    torch.max_pool2d: _maximum_function,
    F.adaptive_max_pool1d: _adaptive_maximum_function,
    F.adaptive_max_pool2d: _adaptive_maximum_function,
    torch.amax: _largest,
    torch.mean: _mean,
    torch.sum: _sum,
    F.interpolate: _interpolate,
    F.upsample: _interpolate,
}

METHODS: dict[Any, Handler] = {"mean": _mean, "sum": _sum, "amax": _largest}
