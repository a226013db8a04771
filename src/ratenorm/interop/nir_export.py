"""`export_nir`: a spiking network as a NIR file that other simulators can read, with what NIR cannot say beside it.

The nodes are those of NIR; what NIR has no field for (soft reset, start potentials, the coding of the input, step
biases, class names) is metadata. Two checksums close the file: one over what it means, which survives a copy by `nir`
itself, and one over its bytes, after which nothing damaged reaches the HDF5 library.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ratenorm._version import __version__
from ratenorm.errors import ExchangeWarning
from ratenorm.graph.net import Converted, SpikingNet, spiking_net
from ratenorm.graph.ops import Fire
from ratenorm.interop.extras import needed
from ratenorm.interop.units import Expressed, Pools, Unit, express
from ratenorm.io.files import to_json, write_atomic

FORMAT, VERSION = "ratenorm-nir", 1
KEY = "ratenorm"  # of the metadata
SEAL = b"\nratenorm-nir-sha256:"  # then 64 hexadecimal digits: the end of the file
NEURON = {"reset": "subtract", "fires": "v >= v_threshold", "smallest_v": "none", "dt": 1.0}
CODING = "constant: the same frame at each of T steps"
READOUT = "mean of the output over the steps so far"


@dataclass(frozen=True)
class NirFile:
    """A written NIR file: where it is, and what a reader that knows only NIR would get wrong."""

    path: Path
    notes: tuple[str, ...]
    pools: Pools
    nodes: int
    edges: int

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.nodes} NIR nodes, {self.edges} edges, {self.path.stat().st_size / 1e6:.2f} MB"]
        return "\n".join([*lines, "What NIR cannot say, and readers must be told (ratenorm.interop does):"]) + "".join(
            f"\n  - {note}" for note in self.notes
        )


def export_nir(
    net: SpikingNet | Converted,
    path: str | os.PathLike[str],
    *,
    pools: Pools = "fold",
    about: Mapping[str, Any] | None = None,
    warn: bool = True,
) -> NirFile:
    """Write a spiking network as a NIR file.

    Args:
        net: The spiking network, or the conversion that made it.
        path: The file to write, such as "net.nir".
        pools: How average pools are written. "fold" puts them into the weights after them, which every reader can
            read; "sum" writes SumPool2d (sinabs), "average" AvgPool2d (SpikingJelly, snnTorch).
        about: Anything worth keeping with it, as JSON: class names, the transform of the images.
        warn: Whether to warn of what NIR cannot say.

    Returns:
        The file, and what it cannot say.

    Raises:
        ConversionError: If NIR has no way to express a node; the message names it and the remedy.
        UsageError: If the packages `nir` and `h5py` are missing.

    Example:
        >>> import tempfile, torch, ratenorm as rn
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> conversion = rn.convert(model, "max", example=torch.rand(1, 4), calibration=torch.rand(64, 4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = rn.export_nir(conversion, f"{folder}/net.nir", warn=False)
        ...     same = rn.import_nir(file.path).same_as(conversion.net)
        >>> same
        True
    """
    net = spiking_net(net)
    expressed = express(net, pools)
    notes = what_nir_cannot_say(net, expressed)
    graph = nir_graph(net, expressed, pools, dict(about or {}), notes)
    nir = needed("nir")
    needed("h5py")
    buffer = io.BytesIO()
    nir.write(buffer, graph)
    data = buffer.getvalue()
    written = write_atomic(path, data + SEAL + hashlib.sha256(data).hexdigest().encode())
    if warn:
        warnings.warn(f"Exporting to NIR: {' '.join(notes)}", ExchangeWarning, stacklevel=2)
    return NirFile(written, notes, pools, len(graph.nodes), len(graph.edges))


def what_nir_cannot_say(net: SpikingNet, expressed: Expressed) -> tuple[str, ...]:
    """One sentence for each thing that a reader has to be told beside the file."""
    fires = [node.op for node in net.populations if isinstance(node.op, Fire)]
    notes = [
        "Reset: neurons subtract their threshold (soft reset); NIR's IF resets to v_reset.",
        "Firing: neurons fire at v >= v_threshold; NIR's IF fires at v > v_threshold.",
        "Floor: potentials have no lower bound.",
        "Input: the same frame is shown at each step; the answer is the mean of the output over the steps.",
    ]
    if any(bool((op.start != 0).any()) for op in fires):
        notes.append("Start: potentials do not start at 0; the start is in the metadata of each IF node.")
    if any(op.step_bias is not None for op in fires):
        notes.append("Step biases: currents of single steps are in the metadata of IF nodes; no reader adds them.")
    if expressed.double:
        names = ", ".join(expressed.double)
        notes.append(f"Precision: {names} must be summed in float64 to give the same spikes (sums on no float32 grid).")
    return tuple(notes)


def nir_graph(
    net: SpikingNet, expressed: Expressed, pools: Pools, about: dict[str, Any], notes: tuple[str, ...] = ()
) -> Any:
    """The `nir.NIRGraph` of a network."""
    nir = needed("nir")
    nodes = {unit.name: _nir_node(nir, unit) for unit in expressed.units}
    edges = [(name, unit.name) for unit in expressed.units for name in unit.inputs]
    graph = nir.NIRGraph(nodes=nodes, edges=edges, metadata={})
    content = content_of(net, expressed, pools, about, notes)
    digest = digest_of_graph(graph.to_dict(), content)
    graph.metadata = {KEY: to_json({"content": to_json(content), "sha256": digest})}
    return graph


def content_of(
    net: SpikingNet, expressed: Expressed, pools: Pools, about: dict[str, Any], notes: tuple[str, ...]
) -> dict[str, Any]:
    """What the metadata says: how to run the file, and how to get the network back from it."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "ratenorm": __version__,
        "neuron": NEURON,
        "coding": CODING,
        "readout": READOUT,
        "notes": list(notes),
        "pools": pools,
        "order": [u.name for u in expressed.units],
        "units": {u.name: {"node": u.source, "part": u.part, "pool": list(u.pool)} for u in expressed.units},
        "double": list(expressed.double),
        "exponents": {name: list(e) for name, e in expressed.exponents.items()},
        "nodes": [
            {
                "name": n.name,
                "kind": n.op.kind,
                "inputs": list(n.inputs),
                "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in n.op.settings().items()},
                "tensors": {k: list(t.shape) for k, t in n.op.tensors().items()},
            }
            for n in net.nodes
        ],
        "output": net.output,
        "input_shape": list(net.input_shape),
        "about": about,
    }


def _nir_node(nir: Any, unit: Unit) -> Any:
    values = {k: _plain(v) for k, v in unit.values.items()}
    metadata = {k: _plain(t) for k, t in unit.metadata.items()}
    if unit.kind in ("Input", "Output"):
        shape = {unit.kind.lower(): values["shape"]}
        return nir.Input(shape) if unit.kind == "Input" else nir.Output(shape)
    if unit.kind == "Flatten":
        return nir.Flatten({"input": values["input_type"]}, values["start_dim"], values["end_dim"])
    return getattr(nir, unit.kind)(**values, metadata=metadata)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().contiguous().numpy()
    return np.array(value) if isinstance(value, tuple) else value


def digest_of_graph(graph: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """sha256 over what a graph means: every node's values, the edges and our metadata, whatever the file's layout."""
    digest = hashlib.sha256(to_json(content).encode())
    for name in sorted(graph["nodes"]):
        digest.update(f"\n{name}".encode())
        _digest_values(digest, graph["nodes"][name])
    edges = sorted([_text(a), _text(b)] for a, b in graph["edges"])
    digest.update(json.dumps(edges).encode())
    return digest.hexdigest()


def _digest_values(digest: Any, values: Mapping[str, Any]) -> None:
    for key in sorted(values):
        value = values[key]
        if isinstance(value, Mapping) and not value:
            continue  # a file does not keep empty metadata
        digest.update(f"\t{key}=".encode())
        if isinstance(value, Mapping):
            _digest_values(digest, value)
        elif isinstance(value, str | bytes):
            digest.update(_text(value).encode())
        else:
            array = np.asarray(value)
            array = array.astype(np.int64) if array.dtype.kind in "iu" else array
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())


def _text(value: str | bytes) -> str:
    return value.decode("utf8", "replace") if isinstance(value, bytes) else str(value)
