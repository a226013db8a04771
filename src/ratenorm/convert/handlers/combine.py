"""Sums, differences, concatenation, and scaling or shifting by constants."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from ratenorm.convert.handlers.arguments import REQUIRED, bind, constant
from ratenorm.convert.handlers.shapes import expanded
from ratenorm.convert.lower import GATE, Handler, Lowering, Ref, Refused
from ratenorm.convert.remedies import CLIP
from ratenorm.graph.ops import Add, Affine, Concat, Reshape


def _scaled(lo: Lowering, at: fx.Node, x: Ref, factor: Any, part: str = "") -> Ref:
    return lo.emit(at, Affine(scale=constant(lo, at, factor)), x, part=part, shape=x.features if part else None)


def _sum(lo: Lowering, at: fx.Node, a: Any, b: Any, weight: float = 1.0) -> Ref:
    """a + weight b, where at least one depends on the input."""
    if isinstance(a, Ref) and isinstance(b, Ref):
        shape = tuple(lo.value(at).shape[1:])
        a, b = expanded(lo, at, a, shape, "first"), expanded(lo, at, b, shape, "second")
        if weight != 1.0:
            b = _scaled(lo, at, b, weight, part="scale")
        return lo.emit(at, Add(), a, b)
    if isinstance(a, Ref):
        return lo.emit(at, Affine(shift=constant(lo, at, b) * weight), a)
    return lo.emit(at, Affine(scale=constant(lo, at, weight), shift=constant(lo, at, a)), b)


def _add(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, other=REQUIRED)
    return _sum(lo, at, a["input"], a["other"], float(kwargs.get("alpha", 1.0)))


def _subtract(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, other=REQUIRED)
    return _sum(lo, at, a["input"], a["other"], -float(kwargs.get("alpha", 1.0)))


def _multiply(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a, b = bind(args, kwargs, input=REQUIRED, other=REQUIRED).values()
    if isinstance(a, Ref) and isinstance(b, Ref):
        one, two = (arg for arg in at.args if isinstance(arg, fx.Node))
        smooth = two.all_input_nodes == [one] or one.all_input_nodes == [two]  # x * sigmoid(x)
        raise Refused("multiplies two values of the network", CLIP if smooth else GATE)
    x, factor = (a, b) if isinstance(a, Ref) else (b, a)
    return _scaled(lo, at, x, factor)


def _divide(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a, b = bind(args, kwargs, input=REQUIRED, other=REQUIRED).values()
    if isinstance(b, Ref):
        raise Refused("divides by a value of the network", "divide by constants only")
    return _scaled(lo, at, a, 1.0 / torch.as_tensor(b, dtype=torch.float64))


def _reversed(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    """rsub: other - input."""
    a = bind(args, kwargs, input=REQUIRED, other=REQUIRED)
    return _sum(lo, at, a["other"], a["input"], -float(kwargs.get("alpha", 1.0)))


def _concat(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, tensors=REQUIRED, dim=kwargs.get("axis", 0))
    parts, dim = tuple(a["tensors"]), int(a["dim"]) % lo.value(at).ndim
    if dim == 0 or not all(isinstance(p, Ref) for p in parts):
        raise Refused(
            "concatenates along the batch or with constants", "concatenate values of the network along channels"
        )
    lo.note(at, "layer", f"concatenation of {len(parts)} along dimension {dim}")
    return lo.emit(at, Concat(dim), *parts)


def _stack(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    """A new dimension, then a concatenation along it."""
    a = bind(args, kwargs, tensors=REQUIRED, dim=0)
    parts, dim = tuple(a["tensors"]), int(a["dim"]) % lo.value(at).ndim
    if dim == 0 or not all(isinstance(p, Ref) for p in parts):
        raise Refused("stacks along the batch, or constants", "stack values of the network along dimension 1 or later")
    shape = (*parts[0].features[: dim - 1], 1, *parts[0].features[dim - 1 :])
    apart = [lo.emit(at, Reshape(shape), p, part=str(k), shape=shape) for k, p in enumerate(parts)]
    lo.note(at, "layer", f"stack of {len(parts)} along dimension {dim}")
    return lo.emit(at, Concat(dim), *apart)


def _side_by_side(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    return _concat(lo, at, (*args, 1) if args else (kwargs["tensors"], 1), {})


def _negate(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    return _scaled(lo, at, args[0], -1.0)


FUNCTIONS: dict[Any, Handler] = {
    operator.add: _add,
    operator.iadd: _add,
    torch.add: _add,
    operator.sub: _subtract,
    operator.isub: _subtract,
    torch.sub: _subtract,
    torch.subtract: _subtract,
    torch.rsub: _reversed,
    operator.mul: _multiply,
    operator.imul: _multiply,
    torch.mul: _multiply,
    torch.multiply: _multiply,
    operator.truediv: _divide,
    operator.itruediv: _divide,
    torch.div: _divide,
    torch.true_divide: _divide,
    operator.neg: _negate,
    torch.neg: _negate,
    torch.cat: _concat,
    torch.concat: _concat,
    torch.concatenate: _concat,
    torch.hstack: _side_by_side,
    torch.stack: _stack,
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
