"""NIR graphs of others: what each of their nodes is here, or why it is nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ratenorm.errors import ConversionError, FileFormatError, UsageError
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import Add, Affine, AvgPool, Conv, Fire, Input, Linear, Op, Reshape
from ratenorm.io.spiking import LARGEST_VALUE, check_sizes

Values = Mapping[str, Any]
Shape = tuple[int, ...]

_NEURONS = "Only IF neurons can be run here: retrain with them, or run this graph on the simulator it came from"
_NO_FORM = {
    "LIF": f"is a leaky neuron. {_NEURONS}",
    "CubaLIF": f"is a leaky neuron with synapses of its own. {_NEURONS}",
    "LI": f"is a leaky integrator. {_NEURONS}",
    "CubaLI": f"is a leaky integrator. {_NEURONS}",
    "I": "is an integrator. Remove it: outputs are averaged over time here",
    "Delay": "delays spikes. Remove it: layers follow each other within a step here",
    "Threshold": "is a neuron without memory. Replace it by IF",
    "NIRGraph": "is a graph within the graph. Write its nodes into the outer graph",
}


def foreign_net(
    nodes: Mapping[str, Values], edges: list[tuple[str, str]], reset: str | None, dt: float | None
) -> SpikingNet:
    """The network of a graph without our metadata."""
    order = _order(nodes, edges)
    reads: dict[str, list[str]] = {name: [] for name in nodes}
    for a, b in edges:
        reads[b].append(a)
    work = _Reading(reset, dt)
    for name in order:
        work.add(name, nodes[name], sorted(reads[name], key=order.index))
    net = SpikingNet(tuple(work.nodes), work.output, work.shapes["input"])
    check_sizes(net)
    return net


def _order(nodes: Mapping[str, Values], edges: list[tuple[str, str]]) -> list[str]:
    before: dict[str, set[str]] = {name: set() for name in nodes}
    for a, b in edges:
        before[b].add(a)
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        circle = " -> ".join(map(str, error.args[1]))
        raise FileFormatError(
            f"its graph has a cycle ({circle}). Recurrent networks cannot be run here: unroll it, or remove the edge."
        ) from error
    for kind, names in (("Input", _of_kind(nodes, "Input")), ("Output", _of_kind(nodes, "Output"))):
        if len(names) != 1:
            raise FileFormatError(f"it has {len(names)} nodes of the kind {kind}; a network has one.")
    alone = [n for n in order if not before[n] and nodes[n].get("type") != "Input"]
    unread = [n for n in order if all(n != a for a, _ in edges) and nodes[n].get("type") != "Output"]
    if alone or unread:
        raise FileFormatError(f"its node {(alone or unread)[0]!r} is joined to nothing. Remove it, or add the edge.")
    order.sort(key=lambda n: nodes[n].get("type") != "Input")  # stable: the input first
    return order


def _of_kind(nodes: Mapping[str, Values], kind: str) -> list[str]:
    return [name for name, node in nodes.items() if node.get("type") == kind]


class _Reading:
    """The nodes read so far, with the shapes of their values."""

    def __init__(self, reset: str | None, dt: float | None) -> None:
        self.reset, self.dt = reset, dt
        self.nodes: list[Node] = []
        self.shapes: dict[str, Shape] = {}
        self.became: dict[str, str] = {}
        self.output = ""

    def add(self, name: str, node: Values, inputs: list[str]) -> None:
        kind = node.get("type")
        if kind == "Input":
            shape = _shape(name, node["shape"])
            self.nodes.append(Node("input", Input()))
            self.shapes["input"], self.became[name] = shape, "input"
            return
        if kind in _NO_FORM:
            raise ConversionError(f"{name!r} ({kind}) {_NO_FORM[str(kind)]}.")
        before = self._sum(name, [self.became[i] for i in inputs])
        if kind == "Output":
            self.output = before
            _same_shape(name, _shape(name, node["shape"]), self.shapes[before])
            return
        if kind not in _READ:
            raise ConversionError(
                f"{name!r} is a node of the kind {kind!r}, which is not one of NIR's known here: {', '.join(_READ)}."
            )
        for op in _READ[str(kind)](self, name, node, self.shapes[before]):
            before = self.emit(name, op, (before,))
        self.became[name] = before

    def emit(self, wanted: str, op: Op, inputs: tuple[str, ...]) -> str:
        name, k = wanted, 1
        while name in self.shapes:
            k += 1
            name = f"{wanted}~{k}"
        self.nodes.append(Node(name, op, inputs))
        try:
            self.shapes[name] = _shape_after(op, [self.shapes[i] for i in inputs])
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            given = " and ".join(str(self.shapes[i]) for i in inputs)
            why = (str(error).splitlines() or [""])[0][:120]
            raise FileFormatError(f"the shapes do not fit: {wanted!r} ({op.kind}) reads {given} ({why}).") from error
        if not 1 <= math.prod(self.shapes[name]) <= LARGEST_VALUE:
            raise FileFormatError(f"{wanted!r} makes values of the shape {self.shapes[name]}; that is too much.")
        return name

    def _sum(self, name: str, inputs: list[str]) -> str:
        if len(inputs) == 1:
            return inputs[0]
        shapes = {self.shapes[i] for i in inputs}
        if len(shapes) > 1:
            raise FileFormatError(f"the shapes do not fit: {name!r} adds values of {sorted(shapes)}.")
        return self.emit(f"{name}.sum", Add(), tuple(inputs))


def _shape_after(op: Op, shapes: list[Shape]) -> Shape:
    """By a run that computes nothing."""
    blank = replace(op, **{key: t.to("meta") for key, t in op.tensors().items()})
    value = blank(*(torch.empty(2, *shape, device="meta") for shape in shapes))
    if len(value) != 2:
        raise ValueError("it does not keep its images apart")
    return tuple(value.shape[1:])


def _same_shape(name: str, said: Shape, found: Shape) -> None:
    if said != found:
        raise FileFormatError(f"the shapes do not fit: {name!r} is of {said}, what it reads is of {found}.")


def _shape(name: str, value: Any) -> Shape:
    array = np.atleast_1d(np.asarray(value))
    if array.dtype.kind not in "iu" or array.ndim != 1 or not 1 <= len(array) <= 4 or (array < 1).any():
        raise FileFormatError(f"{name!r} has the shape {value!r}; positive whole numbers are expected.")
    return tuple(int(n) for n in array)


def _tensor(name: str, node: Values, key: str, ndim: tuple[int, ...]) -> Tensor:
    array = np.asarray(node[key])
    if array.dtype.kind not in "fiu" or array.ndim not in ndim:
        raise FileFormatError(f"{key} of {name!r} has the shape {array.shape} and the type {array.dtype}.")
    with np.errstate(over="ignore"):
        tensor = torch.from_numpy(array.astype(np.float32))
    if not torch.isfinite(tensor).all():
        raise FileFormatError(f"{key} of {name!r} holds NaN or infinity.")
    return tensor


def _whole(name: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    array = np.atleast_1d(np.asarray(value))
    if array.dtype.kind not in "iu" or array.ndim != 1 or len(array) not in (1, count) or (array < least).any():
        raise FileFormatError(
            f"{name!r} has the setting {value!r}; {count} whole numbers from {least} on are expected."
        )
    if (array > 2**20).any():
        raise FileFormatError(f"{name!r} has the setting {value!r}, which is too large.")
    return tuple(int(n) for n in np.broadcast_to(array, (count,)))


def _padding(name: str, node: Values, kernel: Shape, stride: Shape, dilation: Shape) -> tuple[int, ...]:
    """Before and after each dimension, the last first, as F.pad takes it."""
    given = node["padding"]
    count = len(kernel)
    if isinstance(given, str) and given == "same":
        if any(s != 1 for s in stride):
            raise FileFormatError(f"{name!r} has padding 'same' with the stride {stride}; that fits no shape.")
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple(n for t in reversed(total) for n in (t // 2, t - t // 2))
    none = isinstance(given, str) and given == "valid"
    sides = (0,) * count if none else _whole(name, given, count, 0)
    return tuple(n for side in reversed(sides) for n in (side, side))


def _convolution(reading: _Reading, name: str, node: Values, shape: Shape) -> list[Op]:
    dims = 2 if node["type"] == "Conv2d" else 1
    if len(shape) != dims + 1:
        raise FileFormatError(f"the shapes do not fit: {name!r} reads {shape}.")
    weight = _tensor(name, node, "weight", (dims + 2,))
    kernel = tuple(weight.shape[2:])
    stride, dilation = (_whole(name, node[key], dims, 1) for key in ("stride", "dilation"))
    groups = _whole(name, node["groups"], 1, 1)[0]
    bias = _tensor(name, node, "bias", (1,))
    if weight.numel() == 0 or len(bias) != len(weight) or weight.shape[1] * groups != shape[0] or len(weight) % groups:
        raise FileFormatError(
            f"the shapes do not fit: {name!r} has a weight of {tuple(weight.shape)}, a bias of {tuple(bias.shape)} and "
            f"{groups} groups, and reads {shape}."
        )
    if node.get("input_shape") is not None:
        _same_shape(name, _shape(name, node["input_shape"]), shape[1:])
    padding = _padding(name, node, kernel, stride, dilation)
    return [Conv(weight, bias, stride, padding, dilation, groups)]


def _linear(reading: _Reading, name: str, node: Values, shape: Shape) -> list[Op]:
    weight = _tensor(name, node, "weight", (2,))
    bias = _tensor(name, node, "bias", (1,)) if node["type"] == "Affine" else None
    if shape != (weight.shape[1],) or (bias is not None and len(bias) != len(weight)):
        raise FileFormatError(
            f"the shapes do not fit: {name!r} has a weight of {tuple(weight.shape)} and reads {shape}."
        )
    return [Linear(weight, bias)]


def _scale(reading: _Reading, name: str, node: Values, shape: Shape) -> list[Op]:
    scale = _tensor(name, node, "scale", (0, 1, 2, 3))
    if tuple(scale.shape) != shape and scale.numel() != 1:
        raise FileFormatError(f"the shapes do not fit: {name!r} scales by {tuple(scale.shape)} and reads {shape}.")
    return [Affine(scale=scale.reshape(1) if scale.numel() == 1 else scale)]


def _pool(reading: _Reading, name: str, node: Values, shape: Shape) -> list[Op]:
    if len(shape) != 3:
        raise FileFormatError(f"the shapes do not fit: {name!r} pools {shape}.")
    kernel, stride = (_whole(name, node[key], 2, 1) for key in ("kernel_size", "stride"))
    padding = _whole(name, node["padding"], 2, 0)
    pool = AvgPool(kernel, stride, padding)
    if node["type"] == "AvgPool2d":
        return [pool]
    return [pool, Affine(scale=torch.tensor([float(math.prod(kernel))]))]


def _flatten(reading: _Reading, name: str, node: Values, shape: Shape) -> list[Op]:
    start, end = (int(np.asarray(node[key])) for key in ("start_dim", "end_dim"))
    first, last = start % len(shape), end % len(shape)
    if not (-len(shape) <= start < len(shape) and -len(shape) <= end < len(shape) and first <= last):
        raise FileFormatError(f"{name!r} flattens the dimensions {start} to {end} of {shape}.")
    return [Reshape((*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))]


def _population(reading: _Reading, name: str, node: Values, shape: Shape) -> list[Op]:
    if reading.reset != "subtract":
        raise UsageError(
            f"{name!r} is an IF neuron, which NIR resets to v_reset, and the file does not say otherwise. Networks "
            "here subtract the threshold. If this graph is meant so, as those of converted networks are, say it: "
            "import_nir(..., reset='subtract'), on the command line --reset subtract."
        )
    threshold, r, v_reset = (
        _tensor(name, {"v_reset": np.float32(0), **node}, key, (0, 1, 2, 3)) for key in ("v_threshold", "r", "v_reset")
    )
    if tuple(threshold.shape) != shape and threshold.numel() != 1:
        _same_shape(name, tuple(threshold.shape), shape)
    if not bool((threshold > 0).all()):
        raise FileFormatError(f"{name!r} has the threshold {float(threshold.min())}; thresholds must be positive.")
    if bool((v_reset != 0).any()):
        raise ConversionError(f"{name!r} resets to {float(v_reset.abs().max())}; only 0 can be read as a soft reset.")
    if r.numel() != 1 and r.shape != threshold.shape:
        _same_shape(name, tuple(r.shape), shape)
    same = threshold.flatten()[:1]
    threshold = same if bool((threshold == same).all()) else threshold
    return [*_gain(reading, name, r), Fire(threshold.clone(), torch.zeros(1))]


def _gain(reading: _Reading, name: str, r: Tensor) -> list[Op]:
    dt = 1.0 if reading.dt is None else float(reading.dt)
    gain = r.double() * dt
    if bool(((gain - 1.0).abs() < 1e-6).all()):
        return []
    if reading.dt is None:
        raise UsageError(
            f"{name!r} has r = {float(r.flatten()[0]):g}, so the length of a step matters, and NIR does not say it. "
            f"Give it: import_nir(..., dt=...), on the command line --dt. Here dt = {1 / float(r.flatten()[0]):g} "
            "makes r * dt = 1."
            if float(r.flatten()[0])
            else f"{name!r} has r = 0."
        )
    return [Affine(scale=gain.float().reshape(1) if gain.numel() == 1 else gain.float())]


_READ: dict[str, Callable[[_Reading, str, Values, Shape], list[Op]]] = {
    "Affine": _linear,
    "Linear": _linear,
    "Conv1d": _convolution,
    "Conv2d": _convolution,
    "Scale": _scale,
    "SumPool2d": _pool,
    "AvgPool2d": _pool,
    "Flatten": _flatten,
    "IF": _population,
}
