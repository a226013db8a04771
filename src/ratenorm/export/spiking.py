"""A `SpikingNet` as one safetensors file: nodes and settings as JSON, tensors by name, a checksum over all."""

from __future__ import annotations

import os
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ratenorm._version import __version__
from ratenorm.errors import FileFormatError, RatenormError
from ratenorm.files import read_tensors, write_tensors
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.graph.ops import KINDS, Activation, Op

FORMAT, VERSION = "ratenorm-spiking-net", 1
_SEPARATOR = "//"  # between a node's name and its tensor's


def save(net: SpikingNet, path: str | os.PathLike[str], about: dict[str, Any] | None = None) -> Path:
    """Write a spiking network. `about` is anything worth keeping with it, as JSON (where it came from, transforms)."""
    nodes = [
        {"name": n.name, "kind": n.op.kind, "inputs": list(n.inputs), "settings": _plain(n.op.settings())}
        for n in net.nodes
    ]
    tensors = {f"{n.name}{_SEPARATOR}{key}": t for n in net.nodes for key, t in n.op.tensors().items()}
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
    tensors, content = read_tensors(path, FORMAT, VERSION)
    try:
        by_node: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            name, _, field = key.rpartition(_SEPARATOR)
            by_node.setdefault(name, {})[field] = tensor
        nodes = tuple(Node(n["name"], _op(n, by_node.pop(n["name"], {})), tuple(n["inputs"])) for n in content["nodes"])
        if by_node:
            raise ValueError(f"tensors of unknown nodes {sorted(by_node)}")
        net = SpikingNet(nodes, content["output"], tuple(int(s) for s in content["input_shape"]))
        if any(s < 1 for s in net.input_shape):
            raise ValueError(f"input shape {net.input_shape}")
        _ = net.shapes  # a dry run: what does not fit together is found here and not in the middle of a simulation
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError, AttributeError, RatenormError) as error:
        raise FileFormatError(
            f"Reading {path}: its parts do not make a spiking network ({str(error).splitlines()[0][:200]}). "
            "Convert the network again."
        ) from error
    about = content.get("about")
    return net, about if isinstance(about, dict) else {}


def _plain(settings: dict[str, object]) -> dict[str, object]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}


def _op(entry: dict[str, Any], tensors: dict[str, Tensor]) -> Op:
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
