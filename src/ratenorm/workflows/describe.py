"""What is in a file, in words: for `ratenorm info`."""

from __future__ import annotations

import json
from pathlib import Path

from ratenorm import records
from ratenorm.errors import FileFormatError, UsageError
from ratenorm.graph.ops import Fire
from ratenorm.io import networks as network
from ratenorm.io import spiking
from ratenorm.io.files import HEADER_LIMIT, regular
from ratenorm.io.text import printable
from ratenorm.train import checkpoint
from ratenorm.workflows.tables import accuracy_table
from ratenorm.workflows.train import thresholds


def describe(path: Path) -> str:
    """A few lines about a file that ratenorm wrote."""
    return printable(_described(path))


def _described(path: Path) -> str:
    if path.is_dir() and (path / records.FILE_NAME).exists():
        path = path / records.FILE_NAME
    if not path.is_file():
        raise UsageError(f"Looking into {path}: there is no such file.")
    if path.suffix == ".json":
        return accuracy_table(records.read(path))
    kind = _kind(path)
    if kind == network.FORMAT:
        return _network(path)
    if kind == spiking.FORMAT:
        return _spiking(path)
    if kind == checkpoint.FORMAT:
        return _checkpoint(path)
    raise FileFormatError(
        f"Looking into {path}: not a file of ratenorm; those are networks, spiking networks, checkpoints, records."
    )


def _kind(path: Path) -> str | None:
    """The format a safetensors file names, without reading its tensors."""
    try:
        with regular(path) as (file, _):
            length = int.from_bytes(file.read(8), "little")
            if length > HEADER_LIMIT:
                return None
            header = json.loads(file.read(length))
        content = json.loads(json.loads(header["__metadata__"]["ratenorm"])["content"])
        return str(content["format"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _network(path: Path) -> str:
    model, spec = network.load_network(path)
    lines = [
        f"{path}: {spec.model} with {spec.activation}, {sum(p.numel() for p in model.parameters()):,} parameters, "
        f"{path.stat().st_size / 1e6:.2f} MB",
        f"takes {spec.input_shape} images of {spec.dataset or 'unknown data'}, tells {spec.num_classes} classes",
    ]
    if found := thresholds(model):
        lines += ["thresholds:", *(f"  {name:<28} {value:.4f}" for name, value in found.items())]
    return "\n".join(lines)


def _spiking(path: Path) -> str:
    net, about = spiking.load_with_about(path)
    total = sum(net.neurons.values())
    lines = [
        f"{path}: a spiking network of {total:,} neurons in {len(net.populations)} populations, {net.parameters:,} "
        f"parameters, {path.stat().st_size / 1e6:.2f} MB",
        f"takes {net.input_shape}, {sum(net.macs.values()):,} multiply-accumulates as an ANN, "
        f"thresholds by {json.dumps(about.get('method', 'unknown'))}, v(0) = {about.get('v0', 'unknown')} x threshold",
        *(
            f"calibrated: {one.get('method')} for T = {one.get('steps')} on {one.get('images')} images"
            for one in about.get("calibrated", [])
            if isinstance(one, dict)
        ),
        f"  {'population':<28} {'neurons':>9}  {'threshold':>10}  {'mean fan-out':>12}",
    ]
    for node in net.populations:
        assert isinstance(node.op, Fire)
        low, high = float(node.op.threshold.min()), float(node.op.threshold.max())
        shown = f"{low:.4f}" if low == high else f"{low:.2f}..{high:.2f}"
        fan_out = float(net.fan_out[node.name].mean())
        special = "" if node.op.step_bias is None else f"  {len(node.op.step_bias) - 1} step biases"
        special += "  signed spikes" if node.op.signed else ""
        lines.append(f"  {node.name:<28} {net.neurons[node.name]:>9,}  {shown:>10}  {fan_out:>12.1f}{special}")
    return "\n".join(lines)


def _checkpoint(path: Path) -> str:
    found = checkpoint.read_checkpoint(path)
    values = sum(t.numel() for t in found.tensors.values())
    return (
        f"{path}: a checkpoint of {found.progress.get('stage')}, epoch {int(found.progress.get('epoch', 0)) + 1}, "
        f"batch {found.progress.get('batch')}, after {float(found.progress.get('seconds', 0)):.0f} s; {values:,} values"
    )
