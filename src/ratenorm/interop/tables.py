"""`export_tables`: a spiking network as whole numbers in NumPy files, for hardware of one's own.

index.json      every layer in order: shapes, connectivity, bits, files with their sha256
NAME.weight.npy whole numbers, of as few bits as they need
NAME.scale.npy  a power of two for each output channel: weight = whole number x scale
NAME.bias.npy   NAME.threshold.npy  NAME.start.npy  NAME.step_bias.npy
simulate.py     a reference simulator in plain NumPy that gives the logits of ratenorm, bit for bit
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ratenorm._version import __version__
from ratenorm.errors import ConversionError, UsageError
from ratenorm.graph.exact import HALF, units_of
from ratenorm.graph.net import Converted, SpikingNet, spiking_net
from ratenorm.graph.ops import Conv, Fire, Linear
from ratenorm.interop.units import Expressed, Unit, express
from ratenorm.io.files import to_json, write_atomic

FORMAT, VERSION = "ratenorm-tables", 1
INDEX, SIMULATOR = "index.json", "simulate.py"
_KINDS = {"Conv1d": "weights", "Conv2d": "weights", "Affine": "weights", "IF": "neurons", "Flatten": "flatten"}


@dataclass(frozen=True)
class Tables:
    """A written folder of tables, and the content of its index."""

    folder: Path
    index: dict[str, Any]

    def __str__(self) -> str:
        lines = [f"{self.folder}: {len(self.index['units'])} layers, {self.index['bytes'] / 1e6:.2f} MB of tables"]
        for unit in self.index["units"]:
            if unit["kind"] == "weights":
                lines.append(
                    f"  {unit['name']:<24} {'x'.join(map(str, unit['weight_shape'])):>16} weights of "
                    f"{unit['weight_bits']:>2} bits, fan-in {unit['fan_in']}"
                )
        return "\n".join(lines)


def export_tables(net: SpikingNet | Converted, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Tables:
    """Write a spiking network as tables of whole numbers, with a simulator in plain NumPy beside them.

    Args:
        net: The spiking network, or the conversion that made it.
        folder: Where to write; made if it is not there.
        overwrite: Replace tables that are there.

    Returns:
        The folder and its index.

    Raises:
        ConversionError: If a node has no place in the tables; the message names it and the remedy.
        UsageError: If the folder has something in it.

    Example:
        >>> import tempfile, torch, ratenorm as rn
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> conversion = rn.convert(model, "max", example=torch.rand(1, 4), calibration=torch.rand(64, 4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tables = rn.interop.export_tables(conversion, folder)
        >>> [unit["kind"] for unit in tables.index["units"]]
        ['input', 'weights', 'neurons', 'weights']
    """
    net, place = spiking_net(net), Path(folder)
    if place.exists() and (not place.is_dir() or (any(place.iterdir()) and not overwrite)):
        raise UsageError(f"Writing tables to {place}: there is something already. Give another folder, or --overwrite.")
    expressed = express(net, "fold")
    entries: list[dict[str, Any]] = []
    written: dict[str, str] = {}
    size, output, static = 0, "", set(net.static)
    for unit in expressed.units:
        if unit.kind == "Output":
            output = unit.inputs[0]
            continue
        entry, arrays = _entry(net, expressed, unit)
        entry["static"] = unit.source in static if unit.source else all(_still(entries, i) for i in unit.inputs)
        entry["files"] = {key: f"{unit.name}.{key}.npy" for key in arrays}
        for key, array in arrays.items():
            data = _npy(array)
            write_atomic(place / f"{unit.name}.{key}.npy", data)
            written[f"{unit.name}.{key}.npy"], size = hashlib.sha256(data).hexdigest(), size + len(data)
        entries.append(entry)
    index = {
        "format": FORMAT,
        "version": VERSION,
        "ratenorm": __version__,
        "input_shape": list(net.input_shape),
        "output": output,
        "neuron": "m = v + (current + step_bias); spike where m >= threshold; v = m - threshold x spike; float32",
        "current": "(sum of weight x input) x scale + bias, exact in float64, rounded to float32 once",
        "readout": "mean of the output over the steps so far",
        "units": entries,
        "sha256": written,
        "bytes": size,
    }
    simulator = package_files("ratenorm.interop").joinpath("reference_simulator.py").read_bytes()
    write_atomic(place / SIMULATOR, simulator)
    write_atomic(place / INDEX, to_json(index).encode())
    return Tables(place, index)


def _still(entries: list[dict[str, Any]], name: str) -> bool:
    return next(bool(e["static"]) for e in entries if e["name"] == name)


def _entry(net: SpikingNet, expressed: Expressed, unit: Unit) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A layer's line of the index, and its arrays."""
    shape = list(net.shapes[unit.source]) if unit.source else None
    entry: dict[str, Any] = {"name": unit.name, "node": unit.source, "inputs": list(unit.inputs), "shape": shape}
    if unit.kind == "Input":
        return {**entry, "kind": "input"}, {}
    if unit.kind not in _KINDS:
        raise ConversionError(
            f"Exporting tables: {unit.source!r} averages over windows whose size is no power of two, which no whole "
            "numbers hold. Remedy: pool over 2x2 or 4x4."
        )
    entry["kind"] = _KINDS[unit.kind]
    if unit.kind == "IF":
        return _neurons(net, unit, entry)
    if unit.kind == "Flatten":
        return entry, {}
    return _weights(net, expressed, unit, entry)


def _neurons(net: SpikingNet, unit: Unit, entry: dict[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    op = net[unit.source].op
    assert isinstance(op, Fire)
    shape = unit.values["v_threshold"].shape
    threshold = _slim(unit.values["v_threshold"], op.threshold)
    bias = unit.metadata.get("step_bias", torch.zeros(1, 1))
    arrays = {"threshold": threshold, "start": unit.metadata["start"], "step_bias": bias}
    entry["neurons"] = int(shape.numel())
    return entry, {key: np.ascontiguousarray(t.numpy(), np.float32) for key, t in arrays.items()}


def _slim(full: Tensor, like: Tensor) -> Tensor:
    """A threshold in the shape in which it broadcasts."""
    padded = (1,) * (full.ndim - like.ndim) + tuple(like.shape)
    return full[tuple(slice(0, n) for n in padded)].reshape(like.shape)


def _weights(
    net: SpikingNet, expressed: Expressed, unit: Unit, entry: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    weight, bias = unit.values["weight"].double(), unit.values["bias"].double()
    double = unit.name in expressed.double
    if double:
        if not isinstance(net[unit.source].op, Conv | Linear):
            raise ConversionError(
                f"Exporting tables: {unit.source!r} scales values that lie on no grid, which no whole numbers hold. "
                "Remedy: let a convolution or a linear layer follow at once, so that the scale is folded into it."
            )
        sizes = weight.abs().flatten(1).sum(1)
        scale = torch.exp2(torch.frexp(sizes).exponent.double() - HALF)
    else:
        scale = units_of(weight)
    scale = torch.where(torch.isfinite(scale) & (scale > 0), scale, 1.0)
    whole = weight.div(scale.view(-1, *[1] * (weight.ndim - 1))).round()
    largest = float(whole.abs().max())
    entry |= {
        "form": "double" if double else "grid",
        "weight_shape": list(weight.shape),
        "weight_bits": 1 + max(1, int(largest).bit_length()),
        "fan_in": int((weight != 0).flatten(1).sum(1).max()),
        "synapses": int((weight != 0).sum()) * _places(entry["shape"], unit),
    }
    if unit.kind != "Affine":
        for key in ("stride", "padding", "dilation"):
            value = unit.values[key]
            entry[key] = [int(n) for n in (value if isinstance(value, tuple) else (value,))]
    kind = next(k for k in (np.int8, np.int16, np.int32, np.int64) if largest <= np.iinfo(k).max)
    return entry, {"weight": whole.numpy().astype(kind), "scale": scale.numpy(), "bias": bias.numpy()}


def _places(shape: list[int] | None, unit: Unit) -> int:
    """At how many places of its output a layer's weights are used; a copy is at those of its input."""
    if unit.kind == "Affine":
        return 1
    sizes = shape[1:] if shape is not None else np.atleast_1d(unit.values["input_shape"])
    return int(np.prod([int(n) for n in sizes]))


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
