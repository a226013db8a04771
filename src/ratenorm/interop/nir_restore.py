"""The network that a NIR file of ours was written from: every tensor back in its place, then proven."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ratenorm.errors import FileFormatError
from ratenorm.graph.net import Node, SpikingNet
from ratenorm.interop.nir_export import content_of, digest_of_graph, nir_graph
from ratenorm.interop.units import (
    by_channel,
    express,
    gathered,
    grouped,
    narrowed,
    start_by_channel,
    trimmed,
    zeros_around,
)
from ratenorm.io.spiking import check_sizes, op_of

Nodes = Mapping[str, Mapping[str, Any]]


def restored(nodes: Nodes, edges: list[tuple[str, str]], content: dict[str, Any], digest: str) -> SpikingNet:
    """The network that was exported; FileFormatError where graph and metadata are not those that were written."""
    if digest_of_graph({"nodes": nodes, "edges": edges}, content) != digest:
        raise FileFormatError(
            "its graph and its metadata do not belong together: a value, an edge or the metadata was changed. "
            "Export it again."
        )
    net = _rebuilt(nodes, edges, content)
    check_sizes(net)
    again = nir_graph(net, express(net, content["pools"]), content["pools"], content["about"])
    same = content_of(net, express(net, content["pools"]), content["pools"], content["about"], tuple(content["notes"]))
    if digest_of_graph(again.to_dict(), {**same, "ratenorm": content["ratenorm"]}) != digest:
        raise FileFormatError("its metadata describes another network than its graph. Export it again.")
    return net


def _rebuilt(nodes: Nodes, edges: list[tuple[str, str]], content: dict[str, Any]) -> SpikingNet:
    units = content["units"]
    unit_of = {u["node"]: (name, u) for name, u in units.items() if u["part"] == "value" and u["node"]}
    exponents = {name: tuple(int(e) for e in found) for name, found in content["exponents"].items()}
    scaled = {a: exponents[b] for a, b in edges if b in exponents} | exponents
    shapes = _flattened_shapes(nodes, edges)
    found: list[Node] = []
    for entry in content["nodes"]:
        tensors: dict[str, Tensor] = {}
        if entry["tensors"]:
            name, unit = unit_of[entry["name"]]
            values = {k: _tensor(v) for k, v in nodes[name].items() if k in ("weight", "bias", "v_threshold")}
            kept = {k: _tensor(v) for k, v in nodes[name].get("metadata", {}).items()}
            if name in scaled:
                values = {k: by_channel(t, scaled[name], 1) for k, t in values.items()}
                kept = {k: start_by_channel(k, t, scaled[name], 1) for k, t in kept.items()}
            pool = tuple(int(k) for k in unit["pool"])
            tensors = _tensors(entry, values | kept, pool, content["pools"], shapes.get(name))
        found.append(Node(entry["name"], op_of(entry, tensors), tuple(entry["inputs"])))
    return SpikingNet(tuple(found), content["output"], tuple(int(s) for s in content["input_shape"]))


def _flattened_shapes(nodes: Nodes, edges: list[tuple[str, str]]) -> dict[str, tuple[int, ...]]:
    """For each node that reads a Flatten the shape that was flattened."""
    return {b: tuple(int(n) for n in nodes[a]["input_type"]) for a, b in edges if nodes[a].get("type") == "Flatten"}


def _tensor(value: Any) -> Tensor:
    array = np.asarray(value)
    if array.dtype != np.float32:
        raise ValueError(f"a tensor of {array.dtype}")
    return torch.from_numpy(array.copy())


def _tensors(
    entry: dict[str, Any],
    values: dict[str, Tensor],
    pool: tuple[int, ...],
    pools: str,
    flattened: tuple[int, ...] | None,
) -> dict[str, Tensor]:
    """The tensors of an operation, from those of its NIR node."""
    shapes = {key: tuple(int(n) for n in shape) for key, shape in entry["tensors"].items()}
    if entry["kind"] == "fire":
        full = values["v_threshold"]
        return {
            key: _first_of(full, shape) if key == "threshold" else values[key].reshape(shape)
            for key, shape in shapes.items()
        }
    if entry["kind"] == "affine":
        rows = {"scale": values["weight"].flatten(1).diagonal(), "shift": values["bias"]}
        return {key: rows[key][: math.prod(shape)].reshape(shape).clone() for key, shape in shapes.items()}
    weight = values["weight"]
    if entry["kind"] == "conv":
        weight = _kernel(entry["settings"], shapes["weight"], weight, pool if pools == "fold" else ())
        weight = weight * math.prod(pool)
    elif pool and pools == "fold":
        assert flattened is not None
        weight = gathered(weight, flattened, pool)
    else:
        weight = weight * math.prod(pool)
    found = {"weight": weight.reshape(shapes["weight"]).contiguous()}
    return found | ({"bias": values["bias"]} if "bias" in shapes else {})


def _kernel(settings: dict[str, Any], shape: tuple[int, ...], weight: Tensor, pool: tuple[int, ...]) -> Tensor:
    """The weight of a convolution, without the zeros around it, the window of a pool and the blocks of zeros."""
    padding, dilation = tuple(settings["padding"]), tuple(settings["dilation"])
    kernel: tuple[int, ...] = shape[2:]
    if pool:
        kernel = tuple(((k - 1) * d + 1) * w for k, d, w in zip(kernel, dilation, pool, strict=True))
        padding = tuple(p * pool[::-1][i // 2] for i, p in enumerate(padding))
    zeros = zeros_around(kernel, padding, (1,) * len(pool) if pool else dilation)
    assert zeros is not None
    weight = trimmed(weight, zeros)
    if pool:
        weight = narrowed(weight, dilation, pool)
    return grouped(weight, int(settings["groups"]))


def _first_of(full: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor that broadcasts to the full shape of a population."""
    padded = (1,) * (full.ndim - len(shape)) + shape
    return full[tuple(slice(0, n) for n in padded)].reshape(shape).clone()
