"""A `SpikingNet` as one safetensors file: nodes and settings as JSON, tensors by name, a checksum over all."""

from __future__ import annotations

import math
import os
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ratenorm._version import __version__
from ratenorm.errors import FileFormatError, RatenormError
from ratenorm.graph.net import Converted, Graph, Node, SpikingNet, run, spiking_net
from ratenorm.graph.ops import KINDS, Activation, AdaptiveAvgPool, Conv, Linear, Op
from ratenorm.io.files import read_tensors, write_tensors
from ratenorm.io.packing import UNIT, WHOLE, packed, unpacked
from ratenorm.io.shapes import LARGEST_NODES, check_kinds, check_shapes

FORMAT, VERSION, OLDEST = "ratenorm-spiking-net", 2, 1
_SEPARATOR, _PART = "//", "::"  # between a node's name and its tensor's; before the part of a packed tensor
# Bounds that a hostile file meets before memory or time is spent. VGG-16 on 224 x 224 stays below a tenth of each.
LARGEST_VALUE = 2**26  # values of one node for one image
LARGEST_WORK = 2**36  # multiplications of one node for one image
LARGEST_WINDOWS = 2**12  # of adaptive pooling, along one dimension


def save(net: SpikingNet | Converted, path: str | os.PathLike[str], about: dict[str, Any] | None = None) -> Path:
    """Write a spiking network. `about` is anything worth keeping with it, as JSON (where it came from, transforms)."""
    net = spiking_net(net)
    nodes = [
        {"name": n.name, "kind": n.op.kind, "inputs": list(n.inputs), "settings": _plain(n.op.settings())}
        for n in net.nodes
    ]
    tensors: dict[str, Tensor] = {}
    for node in net.nodes:
        for key, tensor in node.op.tensors().items():
            name = f"{node.name}{_SEPARATOR}{key}"
            if key == "weight" and (parts := packed(tensor)) is not None:
                tensors[f"{name}{_PART}{WHOLE}"], tensors[f"{name}{_PART}{UNIT}"] = parts
            else:
                tensors[name] = tensor
    content = {
        "format": FORMAT,
        "version": VERSION,
        "ratenorm": __version__,
        "nodes": nodes,
        "output": net.output,
        "input_shape": list(net.input_shape),
        "about": about or {},
    }
    return write_tensors(path, tensors, content)


def load(path: str | os.PathLike[str]) -> SpikingNet:
    """The spiking network of a file, equal to the one saved."""
    return load_with_about(path)[0]


def load_with_about(path: str | os.PathLike[str]) -> tuple[SpikingNet, dict[str, Any]]:
    """The network and what was kept with it."""
    tensors, content = read_tensors(path, FORMAT, VERSION, OLDEST)
    try:
        if len(content["nodes"]) > LARGEST_NODES:
            raise ValueError(f"{len(content['nodes'])} nodes, {LARGEST_NODES} are allowed")
        by_node: dict[str, dict[str, Tensor]] = {}
        for key, tensor in _whole(tensors).items():
            name, _, field = key.rpartition(_SEPARATOR)
            by_node.setdefault(name, {})[field] = tensor
        nodes = tuple(
            Node(n["name"], op_of(n, by_node.pop(n["name"], {})), tuple(n["inputs"])) for n in content["nodes"]
        )
        if by_node:
            raise ValueError(f"tensors of unknown nodes {sorted(by_node)}")
        check_kinds(nodes)
        net = SpikingNet(nodes, content["output"], tuple(int(s) for s in content["input_shape"]))
        check_sizes(net)
        _ = net.shapes  # a dry run: what does not fit together is found here and not in the middle of a simulation
    except (LookupError, TypeError, ValueError, RuntimeError, ArithmeticError, AttributeError, RatenormError) as error:
        raise FileFormatError(
            f"Reading {path}: its parts do not make a spiking network "
            f"({(str(error).splitlines() or [type(error).__name__])[0][:200]}). Convert the network again."
        ) from error
    about = content.get("about")
    return net, about if isinstance(about, dict) else {}


def _whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with packed weights unpacked."""
    found: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        name, part, kind = key.rpartition(_PART)
        if not part:
            found[key] = tensor
        elif kind == WHOLE:
            found[name] = unpacked(tensor, tensors[f"{name}{_PART}{UNIT}"])
        elif kind != UNIT or f"{name}{_PART}{WHOLE}" not in tensors:
            raise ValueError(f"tensor {key!r} is not known")
    return found


def check_sizes(net: SpikingNet) -> None:
    """Run two images on the meta device, which takes neither memory nor time, and refuse what would take too much."""
    if any(s < 1 for s in net.input_shape) or math.prod(net.input_shape) > LARGEST_VALUE:
        raise ValueError(f"input shape {net.input_shape}")
    shapes: dict[str, tuple[int, ...]] = {}

    def look(node: Node, value: Tensor) -> Tensor:
        if len(value) != 2:
            raise ValueError(f"{node.name!r} does not keep its images apart")
        shapes[node.name] = tuple(value.shape[1:])
        size = value[0].numel()
        if not 1 <= size <= LARGEST_VALUE:
            raise ValueError(f"{node.name!r} makes {size} values of an image, {LARGEST_VALUE} are allowed")
        if isinstance(node.op, Conv | Linear) and size * node.op.weight[0].numel() > LARGEST_WORK:
            raise ValueError(f"{node.name!r} takes more than {LARGEST_WORK} multiplications an image")
        if isinstance(node.op, AdaptiveAvgPool) and max(node.op.size) > LARGEST_WINDOWS:
            raise ValueError(f"{node.name!r} pools to {node.op.size}, {LARGEST_WINDOWS} windows are allowed")
        check_shapes(node, [shapes[i] for i in node.inputs], shapes[node.name])
        return value

    with torch.no_grad():
        blank = Graph(net.nodes, net.output, net.input_shape).to("meta")
        like = next((t for node in blank.nodes for t in node.op.tensors().values()), torch.empty(0, device="meta"))
        run(blank, like.new_zeros(2, *net.input_shape), look)


def _plain(settings: dict[str, object]) -> dict[str, object]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}


def op_of(entry: dict[str, Any], tensors: dict[str, Tensor]) -> Op:
    """The operation that an entry of a file describes; ValueError where it describes none."""
    kind = KINDS[entry["kind"]]
    if kind is Activation:
        raise ValueError("an analog activation")
    if any(t.is_floating_point() and not torch.isfinite(t).all() for t in tensors.values()):
        raise ValueError(f"NaN or infinity in {entry['name']!r}")
    known = {f.name for f in fields(kind)}
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry["settings"].items()}
    given.update(tensors)
    if unknown := set(given) - known:
        raise ValueError(f"{kind.kind} has no {sorted(unknown)}")
    for field in fields(kind):  # an absent tensor that has no default (a missing bias) was None
        if field.name not in given and field.default is MISSING:
            given[field.name] = None
    return kind(**given)
