"""How a network fits a chip, by published limits: an estimate, layer by layer, and what stands in the way.

A chip is a JSON file: cores, neurons and synapses of a core, largest fan-in, bits of a weight, and where the figures
are from. Three come with the package; `chip_fit(net, "my_chip.json")` takes your own.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ratenorm.errors import FileFormatError, UsageError
from ratenorm.graph.exact import HALF, units_of
from ratenorm.graph.net import Converted, Node, SpikingNet, spiking_net
from ratenorm.graph.ops import Affine, Conv, Fire, Input, Linear

CHIPS = ("loihi2", "spinnaker2", "generic")


@dataclass(frozen=True)
class Chip:
    """The limits of a chip."""

    name: str
    cores: int
    neurons_per_core: int
    synapses_per_core: int
    fan_in: int | None  # the most inputs of a neuron; None: not published
    weight_bits: int
    shares_weights: bool
    notes: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        whole = (self.cores, self.neurons_per_core, self.synapses_per_core, self.weight_bits, self.fan_in or 1)
        if not all(type(n) is int and n > 0 for n in whole) or not isinstance(self.shares_weights, bool):
            raise ValueError("cores, neurons_per_core, synapses_per_core, weight_bits and fan_in are positive numbers")
        if not all(isinstance(text, str) for text in (self.name, self.source, *self.notes)):
            raise ValueError("name, source and notes are texts")


@dataclass(frozen=True)
class LayerFit:
    """What a population asks of a chip."""

    name: str
    neurons: int
    fan_in: int
    synapses: int
    weight_bits: int  # signed, on the network's own exact grid
    cores: int
    limit: str  # what decides the number of cores: "neurons" or "synapses"


@dataclass(frozen=True)
class Fit:
    """How a network fits a chip; every figure is an estimate from published limits."""

    chip: Chip
    layers: tuple[LayerFit, ...]
    obstacles: tuple[str, ...]

    @property
    def cores(self) -> int:
        """Cores that all layers take together."""
        return sum(layer.cores for layer in self.layers)

    @property
    def chips(self) -> int:
        """Chips that have as many cores."""
        return -(-self.cores // self.chip.cores)

    def to_json(self) -> dict[str, Any]:
        """For records."""
        return {"estimate": True, "cores": self.cores, "chips": self.chips, **asdict(self)}

    def __str__(self) -> str:
        chip = self.chip
        lines = [
            f"Estimate for {chip.name}, from published limits: {self.cores:,} cores, {self.chips} "
            f"chip{'s' if self.chips > 1 else ''} of {chip.cores} cores.",
            f"  {'population':<28} {'neurons':>9} {'fan-in':>7} {'synapses':>13} {'bits':>5} {'cores':>6}  set by",
        ]
        lines += [
            f"  {one.name:<28} {one.neurons:>9,} {one.fan_in:>7,} {one.synapses:>13,} {one.weight_bits:>5} "
            f"{one.cores:>6,}  {one.limit}"
            for one in self.layers
        ]
        lines += [f"  Obstacle: {text}" for text in self.obstacles]
        lines += [f"  Note: {text}" for text in chip.notes]
        return "\n".join([*lines, f"  Source: {chip.source}."])


def load_chip(name: str | os.PathLike[str]) -> Chip:
    """A chip that comes with the package, or the description in a JSON file of one's own."""
    if str(name) in CHIPS:
        text = package_files("ratenorm.interop").joinpath("chip_descriptions", f"{name}.json").read_text("utf-8")
    else:
        path = Path(name)
        if not path.is_file():
            raise UsageError(
                f"Reading a chip: {str(name)!r} is neither a chip known here ({', '.join(CHIPS)}) nor a file. Write a "
                "JSON file like chip_descriptions/generic.json, and give its name."
            )
        if path.stat().st_size > 2**20:
            raise FileFormatError(f"Reading {path}: a description of a chip has at most 1 MB.")
        text = path.read_text("utf-8", "replace")
    try:
        content = json.loads(text)
        return Chip(**{**content, "notes": tuple(content["notes"])})
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        wanted = ", ".join(field.name for field in fields(Chip))
        raise FileFormatError(
            f"Reading {name}: it does not describe a chip ({str(error)[:200]}). It must be a JSON object with {wanted}."
        ) from error


def chip_fit(net: SpikingNet | Converted, chip: str | os.PathLike[str] | Chip = "loihi2") -> Fit:
    """How a network fits a chip: cores of each layer, and what stands in the way. An estimate.

    Args:
        net: The spiking network, or the conversion that made it.
        chip: "loihi2", "spinnaker2", "generic", a JSON file, or a `Chip`.

    Returns:
        The fit; print it for a table.

    Example:
        >>> import torch, ratenorm as rn
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3000), torch.nn.ReLU(), torch.nn.Linear(3000, 2))
        >>> conversion = rn.convert(model, "max", example=torch.rand(1, 4), calibration=torch.rand(64, 4))
        >>> rn.interop.chip_fit(conversion, "generic").cores
        4
    """
    net = spiking_net(net)
    limits = chip if isinstance(chip, Chip) else load_chip(chip)
    layers = [_layer(net, limits, name, fan_in) for name, fan_in in _fan_in(net).items()]
    obstacles = []
    for one in layers:
        if limits.fan_in is not None and one.fan_in > limits.fan_in:
            obstacles.append(
                f"{one.name!r} has a fan-in of {one.fan_in:,}, the chip allows {limits.fan_in:,}: split the layer."
            )
        if one.fan_in > limits.synapses_per_core:
            obstacles.append(f"{one.name!r}: the synapses of one neuron do not fit a core.")
    wide = [one for one in layers if one.weight_bits > limits.weight_bits]
    if wide:
        most = max(one.weight_bits for one in wide)
        obstacles.append(
            f"{len(wide)} of {len(layers)} layers have weights of up to {most} bits, the chip's have "
            f"{limits.weight_bits}: they must be rounded, which moves spikes and may cost "
            "accuracy. That is not done here."
        )
    if net.input_macs:
        obstacles.append(
            "The first layer takes analog values. A chip that takes spikes only needs them computed beside "
            "it, or coded."
        )
    return Fit(limits, tuple(layers), tuple(obstacles))


@torch.no_grad()
def _fan_in(net: SpikingNet) -> dict[str, Tensor]:
    """For each population, and the output, the synapses that lead to each of its neurons, borders as they are."""
    values: dict[str, Tensor] = {}
    found: dict[str, Tensor] = {}
    for node in net.nodes:
        if isinstance(node.op, Input | Fire):
            if node.inputs:
                found[node.name] = values[node.inputs[0]][0]
            values[node.name] = torch.ones(1, *net.shapes[node.name], dtype=torch.float64)
        else:
            values[node.name] = node.op.paths(*(values[i] for i in node.inputs))
    return found if net.output in found else {**found, net.output: values[net.output][0]}


def _layer(net: SpikingNet, chip: Chip, name: str, fan_in: Tensor) -> LayerFit:
    """A population, or the output, with all weights that lead to it."""
    neurons, synapses = fan_in.numel(), int(fan_in.sum())
    node = net[name]
    before = _weights_before(net, node.inputs[0] if isinstance(node.op, Fire) else name)
    bits = max((_bits(net, n) for n in before), default=1)
    per_neurons, per_synapses = -(-neurons // chip.neurons_per_core), -(-synapses // chip.synapses_per_core)
    limit = "neurons" if per_neurons >= per_synapses else "synapses"
    return LayerFit(name, neurons, int(fan_in.max()), synapses, bits, max(per_neurons, per_synapses), limit)


def _weights_before(net: SpikingNet, name: str) -> list[Node]:
    """The layers with weights between a current and the spikes before it."""
    node = net[name]
    if isinstance(node.op, Input | Fire):
        return []
    own = [node] if isinstance(node.op, Conv | Linear | Affine) else []
    return own + [found for i in node.inputs for found in _weights_before(net, i)]


def _bits(net: SpikingNet, node: Node) -> int:
    """Bits of the signed whole numbers that hold a layer's weights, channel by channel, in its own exact form."""
    if node.name in net.sums.in_double:
        return HALF
    tensors = node.op.tensors()
    rows = tensors.get("weight", tensors.get("scale"))
    if rows is None:
        return 1
    rows = rows.double().reshape(len(rows), -1)
    step = units_of(rows)
    whole = rows.abs().amax(1) / step.where(step.isfinite(), rows.new_ones(()))
    return 1 + max(1, int(whole.max()).bit_length())
