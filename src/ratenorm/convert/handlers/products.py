"""Products with fixed matrices: matmul and einsum become linear layers, with dimensions moved where needed."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor, fx

from ratenorm.convert.handlers.arguments import REQUIRED, bind, the_input
from ratenorm.convert.lower import Handler, Lowering, Ref, Refused
from ratenorm.graph.ops import Linear, Permute, Reshape

_TWO = "a product of two values of the network has no spiking form; multiply by a fixed matrix only"


def _contracted(lo: Lowering, at: fx.Node, x: Ref, matrix: Tensor, dims: list[int], bias: Tensor | None = None) -> Ref:
    """x with some dimensions replaced, at the end, by the rows of `matrix` [n, size of these dimensions]."""
    kept = [d for d in range(1, len(x.shape)) if d not in dims]
    order = (0, *kept, *dims)
    if order != tuple(range(len(x.shape))):
        x = lo.emit(at, Permute(order), x, part="moved", shape=tuple(x.shape[d] for d in order[1:]))
    rows = x.features[: len(kept)]
    if len(dims) != 1:
        flat = (*rows, matrix.shape[1])
        x = lo.emit(at, Reshape(flat), x, part="flat", shape=flat)
    lo.note(at, "layer", f"linear {tuple(matrix.shape)}")
    op = Linear(matrix.detach().clone().contiguous(), None if bias is None else bias.detach().clone())
    return lo.emit(at, op, x, part="linear", shape=(*rows, len(matrix)))


def _shown(lo: Lowering, at: fx.Node, x: Ref) -> Ref:
    """The shape that the run showed."""
    return lo.emit(at, Reshape(tuple(lo.value(at).shape[1:])), x)


def _matmul(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a, b = bind(args, kwargs, input=REQUIRED, other=REQUIRED).values()
    if isinstance(a, Ref) and isinstance(b, Ref):
        raise Refused("multiplies two values of the network", _TWO)
    if isinstance(a, Ref):
        return _shown(lo, at, _contracted(lo, at, a, _matrix(b, last=False), [len(a.shape) - 1]))
    x = the_input(b)
    matrix = _matrix(a, last=True)
    if len(x.shape) < 3:
        raise Refused("multiplies a fixed matrix with the batch", "write x @ matrix.T, so that images stay apart")
    product = _contracted(lo, at, x, matrix, [len(x.shape) - 2])
    order = (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2)
    turned = (*product.features[:-2], product.features[-1], product.features[-2])
    return _shown(lo, at, lo.emit(at, Permute(order), product, part="turned", shape=turned))


def _matrix(fixed: Any, last: bool) -> Tensor:
    """A fixed factor as [rows, what is summed over]; `last`: whether its last dimension is the one that is summed."""
    if not isinstance(fixed, Tensor) or fixed[..., None].squeeze().ndim > 2 or math.prod(fixed.shape[:-2]) != 1:
        raise Refused("multiplies by different matrices at different places", "multiply by one fixed matrix")
    matrix = fixed.reshape(1, -1) if fixed.ndim == 1 else fixed.reshape(fixed.shape[-2:])
    return matrix if last or fixed.ndim == 1 else matrix.T


def _addmm(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    a = bind(args, kwargs, input=REQUIRED, mat1=REQUIRED, mat2=REQUIRED, beta=1, alpha=1)
    fixed = isinstance(a["input"], Tensor) and isinstance(a["mat2"], Tensor) and a["input"].ndim == 1
    if not fixed or not isinstance(a["mat1"], Ref):
        raise Refused("adds a product of two values of the network", _TWO)
    matrix, bias = a["alpha"] * a["mat2"].T, a["beta"] * a["input"]
    return _contracted(lo, at, a["mat1"], matrix, [1], bias.expand(len(matrix)))


def _einsum(lo: Lowering, at: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
    equation, *operands = args
    operands = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], tuple | list) else operands
    values = [o for o in operands if isinstance(o, Ref)]
    text = str(equation).replace(" ", "")
    if len(values) != 1 or len(operands) > 2 or "." in text or "->" not in text:
        raise Refused(
            f"is the einsum {text!r} of {len(values)} values of the network",
            "use one value of the network and one fixed tensor, and name every dimension: 'bchw,oc->bohw'",
        )
    terms, out = text.split("->")
    names = terms.split(",")
    here = operands.index(values[0])
    x, fixed = names[here], (names[1 - here] if len(operands) == 2 else "")
    matrix = operands[1 - here] if len(operands) == 2 else torch.ones((), dtype=lo.value(at).dtype)
    summed = [n for n in x if n not in out]
    new = [n for n in out if n not in x]
    clear = len(set(x)) == len(x) and len(set(fixed)) == len(fixed)
    if not clear or x[0] != out[0] or x[0] in fixed or any(n in out and n in x for n in fixed):
        raise Refused(
            f"is the einsum {text!r}, which mixes images, or multiplies place by place",
            "keep the batch in front, and sum over every dimension that both tensors have",
        )
    # what the fixed tensor has alone is summed first; what the value has alone is summed with weight one
    wide = torch.einsum(f"{fixed}->{''.join(n for n in fixed if n in x or n in out)}", matrix)
    have = [n for n in fixed if n in x or n in out]
    sizes = dict(zip(x, values[0].shape, strict=True))
    wanted = [*new, *summed]
    for n in wanted:
        if n not in have:
            wide, have = wide.unsqueeze(-1).expand(*wide.shape, sizes[n]), [*have, n]
    wide = wide.permute([have.index(n) for n in wanted]) if wanted else wide
    rows = math.prod(wide.shape[: len(new)])
    kept = [n for n in x[1:] if n in out]
    product = _contracted(lo, at, values[0], wide.reshape(rows, -1), [x.index(n) for n in summed])
    split = (*(sizes[n] for n in kept), *wide.shape[: len(new)])
    product = lo.emit(at, Reshape(split), product, part="split", shape=split)
    order = (0, *(1 + [*kept, *new].index(n) for n in out[1:]))
    return lo.emit(at, Permute(order), product)


FUNCTIONS: dict[Any, Handler] = {
    operator.matmul: _matmul,
    torch.matmul: _matmul,
    torch.mm: _matmul,
    torch.mv: _matmul,
    torch.addmm: _addmm,
    torch.einsum: _einsum,
}

METHODS: dict[Any, Handler] = {"matmul": _matmul, "mm": _matmul}
