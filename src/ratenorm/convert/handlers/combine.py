"""Sums, differences, concatenation, and scaling or shifting by constants."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from ratenorm.convert.handlers.arguments import REQUIRED, bind
from ratenorm.convert.lower import Handler, Lowering, Ref, Refused
from ratenorm.graph.ops import Add, Affine, Concat


def _constant(lo: Lowering, at: fx.Node, value: Any) -> Tensor:
    """A number or fixed tensor in a shape that broadcasts over one entry of the batch."""
    fixed = torch.as_tensor(value, dtype=lo.value(at).dtype).detach().clone()
    ndim = lo.value(at).ndim
    if fixed.ndim == ndim:
        if fixed.shape[0] != 1:
            raise Refused(
                f"combines with a constant of shape {tuple(fixed.shape)}, one for each image of a batch",
                "use a constant that is the same for every image",
            )
        fixed = fixed.squeeze(0)
    if not torch.isfinite(fixed).all():
        raise Refused("combines with a constant that is NaN or infinite", "use finite constants")
    return fixed.reshape(1) if fixed.ndim == 0 else fixed


def _scaled(lo: Lowering, at: fx.Node, x: Ref, factor: Any, part: str = "") -> Ref:
    return lo.emit(at, Affine(scale=_constant(lo, at, factor)), x, part=part, shape=x.features if part else None)


def _sum(lo: Lowering, at: fx.Node, a: Any, b: Any, weight: float = 1.0) -> Ref:
    """a + weight b, where at least one depends on the input."""
    if isinstance(a, Ref) and isinstance(b, Ref):
        if a.shape != b.shape:
            raise Refused(f"adds shapes {a.features} and {b.features}", "give both operands the same shape")
        if weight != 1.0:
            b = _scaled(lo, at, b, weight, part="scale")
        return lo.emit(at, Add(), a, b)
    if isinstance(a, Ref):
        return lo.emit(at, Affine(shift=_constant(lo, at, b) * weight), a)
    return lo.emit(at, Affine(scale=_constant(lo, at, weight), shift=_constant(lo, at, a)), b)


def _add(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, other=REQUIRED)
    return _sum(lo, at, a["input"], a["other"], float(kwargs.get("alpha", 1.0)))


def _subtract(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, other=REQUIRED)
    return _sum(lo, at, a["input"], a["other"], -float(kwargs.get("alpha", 1.0)))


def _multiply(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a, b = bind(args, kwargs, input=REQUIRED, other=REQUIRED).values()
    if isinstance(a, Ref) and isinstance(b, Ref):
        raise Refused("multiplies two values of the network", "multiply by constants only; gates have no spiking form")
    x, factor = (a, b) if isinstance(a, Ref) else (b, a)
    return _scaled(lo, at, x, factor)


def _divide(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a, b = bind(args, kwargs, input=REQUIRED, other=REQUIRED).values()
    if isinstance(b, Ref):
        raise Refused("divides by a value of the network", "divide by constants only")
    return _scaled(lo, at, a, 1.0 / torch.as_tensor(b, dtype=torch.float64))


def _concat(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, tensors=REQUIRED, dim=kwargs.get("axis", 0))
    parts, dim = tuple(a["tensors"]), int(a["dim"]) % lo.value(at).ndim
    if dim == 0 or not all(isinstance(p, Ref) for p in parts):
        raise Refused(
            "concatenates along the batch or with constants", "concatenate values of the network along channels"
        )
    lo.note(at, "layer", f"concatenation of {len(parts)} along dimension {dim}")
    return lo.emit(at, Concat(dim), *parts)


def _negate(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    return _scaled(lo, at, args[0], -1.0)


FUNCTIONS: dict[Any, Handler] = {
    operator.add: _add,
    operator.iadd: _add,
    torch.add: _add,
    operator.sub: _subtract,
    operator.isub: _subtract,
    torch.sub: _subtract,
    operator.mul: _multiply,
    operator.imul: _multiply,
    torch.mul: _multiply,
    operator.truediv: _divide,
    operator.itruediv: _divide,
    torch.div: _divide,
    torch.true_divide: _divide,
    operator.neg: _negate,
    torch.neg: _negate,
    torch.cat: _concat,
    torch.concat: _concat,
    torch.concatenate: _concat,
}

METHODS: dict[Any, Handler] = {
    "add": _add,
    "add_": _add,
    "sub": _subtract,
    "sub_": _subtract,
    "mul": _multiply,
    "mul_": _multiply,
    "div": _divide,
    "div_": _divide,
    "neg": _negate,
}
