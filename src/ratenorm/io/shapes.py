"""What `convert` guarantees of a spiking network, asked of one that comes from a file: kinds of settings, and shapes.

torch broadcasts, drops dimensions and counts from behind where it can; each engine would do so in its own way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch

from ratenorm.graph.net import Node
from ratenorm.graph.ops import (
    AdaptiveAvgPool,
    Add,
    Affine,
    AvgPool,
    Concat,
    Conv,
    Fire,
    Input,
    Linear,
    MaxPool,
    Permute,
    Reshape,
    Slice,
    Upsample,
)

LARGEST_NODES = 2**14
LARGEST_STEPS = 2**12  # with a bias of their own
_PADDINGS = ("constant", "reflect", "replicate", "circular")

Shape = tuple[int, ...]


def check_kinds(nodes: Sequence[Node]) -> None:
    """Names are texts, settings of the declared kinds, and all tensors hold one kind of number."""
    for node in nodes:
        if not isinstance(node.name, str) or not all(isinstance(i, str) for i in node.inputs):
            raise ValueError(f"the name {node.name!r} is no text")
        for field in fields(node.op):
            value = getattr(node.op, field.name)
            if not isinstance(value, torch.Tensor) and not _has_kind(value, str(field.type)):
                raise ValueError(f"{node.name!r} has {field.name} {value!r}, not of the kind {field.type}")
    if sum(isinstance(node.op, Input) for node in nodes) != 1:
        raise ValueError("there must be one input")
    kinds = {t.dtype for node in nodes for t in node.op.tensors().values()}
    if kinds - {torch.float32, torch.float64} or len(kinds) > 1:
        found = ", ".join(sorted(map(str, kinds)))
        raise ValueError(f"its tensors hold {found}; one of float32 and float64 is allowed")


def _has_kind(value: Any, declared: str) -> bool:
    if "Tensor" in declared:
        return value is None and "None" in declared
    if declared.startswith("tuple"):
        return isinstance(value, tuple) and all(type(v) is int for v in value)
    return type(value).__name__ == declared


def check_shapes(node: Node, inputs: list[Shape], out: Shape) -> None:
    """The shapes, without the batch, that a node reads and gives."""
    check = _CHECKS.get(type(node.op))
    if check is not None and not check(node.op, inputs, out):
        given = {name: tuple(t.shape) for name, t in node.op.tensors().items()}
        raise ValueError(f"{node.name!r} ({node.op.kind} of {given}) does not fit {inputs}")


def _conv(op: Conv, inputs: list[Shape], out: Shape) -> bool:
    space = op.weight.ndim - 2
    return (
        space in (1, 2)
        and len(inputs[0]) == len(out) == space + 1
        and len(op.stride) == len(op.dilation) == space
        and len(op.padding) == 2 * space
        and min(*op.stride, *op.dilation, op.groups) >= 1
        and op.padding_mode in _PADDINGS
        and _is(op.bias, op.weight.shape[:1])
    )


def _is(tensor: torch.Tensor | None, shape: Sequence[int]) -> bool:
    return tensor is None or tuple(tensor.shape) == tuple(shape)


def _linear(op: Linear, inputs: list[Shape], out: Shape) -> bool:
    return op.weight.ndim == 2 and len(inputs[0]) == len(out) >= 1 and _is(op.bias, op.weight.shape[:1])


def _affine(op: Affine, inputs: list[Shape], out: Shape) -> bool:
    return all(_spreads(tuple(t.shape), inputs[0]) for t in op.tensors().values())


def _spreads(shape: Shape, over: Shape) -> bool:
    """Whether a tensor broadcasts over one image without making it larger."""
    if len(shape) > len(over):
        return False
    return all(a in (1, b) for a, b in zip(shape[::-1], over[::-1], strict=False))


def _pool(op: AvgPool | MaxPool, inputs: list[Shape], out: Shape) -> bool:
    space = len(op.kernel)
    around = (*op.padding, *(op.dilation if isinstance(op, MaxPool) else ()))
    per = 2 if isinstance(op, MaxPool) else 1
    return (
        space in (1, 2)
        and len(inputs[0]) == len(out) == space + 1
        and len(op.stride) == space
        and len(around) == per * space
        and min(*op.kernel, *op.stride) >= 1
        and min(around) >= 0
    )


def _resized(op: AdaptiveAvgPool | Upsample, inputs: list[Shape], out: Shape) -> bool:
    space = len(op.size)
    return space in (1, 2) and len(inputs[0]) == len(out) == space + 1 and min(op.size) >= 1


def _reshape(op: Reshape, inputs: list[Shape], out: Shape) -> bool:
    return out == op.shape and math.prod(out) == math.prod(inputs[0])


def _permute(op: Permute, inputs: list[Shape], out: Shape) -> bool:
    return op.dims[:1] == (0,) and sorted(op.dims) == list(range(len(inputs[0]) + 1))


def _slice(op: Slice, inputs: list[Shape], out: Shape) -> bool:
    return 1 <= op.dim <= len(inputs[0]) and 0 <= op.start < op.stop <= inputs[0][op.dim - 1]


def _add(op: Add, inputs: list[Shape], out: Shape) -> bool:
    return len(inputs) >= 1 and len(set(inputs)) == 1


def _concat(op: Concat, inputs: list[Shape], out: Shape) -> bool:
    others = {(*shape[: op.dim - 1], *shape[op.dim :]) for shape in inputs}
    return 1 <= op.dim <= len(out) and len(others) == 1 and len({len(shape) for shape in inputs}) == 1


def _fire(op: Fire, inputs: list[Shape], out: Shape) -> bool:
    bias = op.step_bias
    steps = bias is None or (bias.ndim >= 1 and 1 <= len(bias) <= LARGEST_STEPS and _spreads(bias.shape[1:], out))
    return steps and _spreads(tuple(op.threshold.shape), out) and _spreads(tuple(op.start.shape), out)


_CHECKS: dict[type, Callable[[Any, list[Shape], Shape], bool]] = {
    Conv: _conv,
    Linear: _linear,
    Affine: _affine,
    AvgPool: _pool,
    MaxPool: _pool,
    AdaptiveAvgPool: _resized,
    Upsample: _resized,
    Reshape: _reshape,
    Permute: _permute,
    Slice: _slice,
    Add: _add,
    Concat: _concat,
    Fire: _fire,
}
