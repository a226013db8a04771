"""What all simulators share: a file loaded by their own importer, run step by step, with its spikes in view."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ratenorm.arguments import check_count, check_images
from ratenorm.errors import ConversionError
from ratenorm.graph.net import Converted, SpikingNet, check_input, spiking_net
from ratenorm.interop.extras import needed
from ratenorm.interop.nir_export import KEY, export_nir
from ratenorm.interop.nir_import import import_nir
from ratenorm.interop.units import Pools, by_channel

Network = SpikingNet | Converted | str | os.PathLike[str]


@dataclass(frozen=True)
class NirNetwork:
    """A NIR file as a simulator gets it: the graph, and what the metadata says beside it."""

    net: SpikingNet
    graph: Any
    content: Mapping[str, Any]

    @property
    def populations(self) -> dict[str, str]:
        """The name of each IF node, by the population it was made from."""
        units = self.content["units"]
        return {u["node"]: name for name, u in units.items() if type(self.graph.nodes[name]).__name__ == "IF"}

    def start(self, name: str) -> Tensor:
        """The potentials that the neurons of an IF node start from, one for each neuron."""
        node = self.graph.nodes[name]
        return torch.from_numpy(node.metadata["start"]).expand(node.v_threshold.shape).contiguous()

    def step_bias(self, name: str) -> Tensor | None:
        """The currents added to an IF node at single steps."""
        found = self.graph.nodes[name].metadata.get("step_bias")
        return None if found is None else torch.from_numpy(found)


def loaded(network: Network, pools: Pools = "fold") -> NirNetwork:
    """The graph of a file, in an order in which it can be evaluated; a network is written to a file first."""
    nir = needed("nir")
    if isinstance(network, str | os.PathLike):
        net, graph = import_nir(network), nir.read(Path(network))
    else:
        net = spiking_net(network)
        with tempfile.TemporaryDirectory() as folder:
            graph = nir.read(export_nir(net, Path(folder) / "net.nir", pools=pools, warn=False).path)
    if KEY not in graph.metadata:
        raise ConversionError(
            f"Reading {network}: the file does not say how its neurons are reset and where they start; only files of "
            "ratenorm do. Import it with rn.import_nir(..., reset='subtract'), and hand in the network."
        )
    content = json.loads(json.loads(graph.metadata[KEY])["content"])
    graph.nodes = {name: graph.nodes[name] for name in content["order"]}
    return NirNetwork(net, graph, content)


@dataclass
class Reader:
    """A network in another simulator. Call it with images and steps for the mean outputs after each step.

    Attributes:
        simulator: Its name and version.
        module: The simulator's own network.
        neurons: Its populations, by their names in ours.
        begin: Puts a batch of so many images at its start.
        advance: One step: the frame in, the output out.
    """

    simulator: str
    net: SpikingNet
    module: nn.Module
    neurons: dict[str, nn.Module]
    begin: Callable[[int], None]
    advance: Callable[[Tensor], Tensor]
    step: int = field(default=0, init=False)

    def __call__(self, x: Tensor, steps: int = 16) -> Tensor:
        """The mean outputs after each step, [steps, batch, classes]."""
        out = torch.stack([output for output, _ in self.run(x, steps)])
        elapsed = torch.arange(1, steps + 1, dtype=torch.float64).view(-1, *[1] * (out.ndim - 1))
        return (out.double().cumsum(0) / elapsed).to(out.dtype)

    @torch.no_grad()
    def run(self, x: Tensor, steps: int) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """The output of each step, and the spikes of every population."""
        check_images(f"Running on {self.simulator}", "the batch", x)
        check_count(f"Running on {self.simulator}", "steps", steps)
        check_input(self.net, x)
        self.begin(len(x))
        with self._watching() as seen:
            for self.step in range(1, steps + 1):
                seen.clear()
                yield self.advance(x), dict(seen)

    @contextmanager
    def _watching(self) -> Iterator[dict[str, Tensor]]:
        seen: dict[str, Tensor] = {}

        def keep(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, inputs: Any, output: Any) -> None:
                seen[name] = (output[0] if isinstance(output, tuple) else output).detach().clone()

            return hook

        handles = [module.register_forward_hook(keep(name)) for name, module in self.neurons.items()]
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()


def installed(package: str) -> str:
    """The version of a package."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


def set_exact_sums(network: NirNetwork, module_of: Callable[[str], nn.Module]) -> None:
    """Let nodes whose sums lie on no float32 grid be summed as ratenorm sums them: in float64, in one fixed form.

    Everywhere else any order of additions gives the same float32, so the simulator's own layers stay.
    """
    scales = {a: network.content["exponents"][b] for a, b in network.graph.edges if b in network.content["exponents"]}
    for name in network.content["double"]:
        module, node = module_of(name), network.net[network.content["units"][name]["node"]]
        _check_weights(name, module, network.graph.nodes[name])
        exponents = tuple(int(e) for e in scales.get(name, ()))

        def forward(x: Tensor, *_: Any, node: Any = node, exponents: tuple[int, ...] = exponents) -> Tensor:
            value = network.net.value(node, x)
            return by_channel(value.transpose(0, 1), exponents, -1).transpose(0, 1) if exponents else value

        module.forward = forward


def _check_weights(name: str, module: nn.Module, node: Any) -> None:
    """Refuse to stand in for a layer that the importer did not read right."""
    for key in ("weight", "bias"):
        found, wanted = getattr(module, key, None), getattr(node, key, None)
        if found is not None and wanted is not None and not np.array_equal(found.detach().numpy(), wanted):
            raise ConversionError(f"Importing {name!r}: the simulator changed its {key}.")


def add_step_biases(network: NirNetwork, reader: Reader) -> None:
    """Add the currents of single steps to the input of the populations that have some."""
    for source, name in network.populations.items():
        rows = network.step_bias(name)
        if rows is None:
            continue

        def add(module: nn.Module, inputs: tuple[Any, ...], rows: Tensor = rows) -> tuple[Any, ...]:
            return (inputs[0] + rows[min(reader.step, len(rows)) - 1], *inputs[1:])

        reader.neurons[source].register_forward_pre_hook(add)


def one_threshold(simulator: str, network: NirNetwork) -> None:
    """Refuse populations whose neurons have different thresholds, for simulators that know one for each."""
    for source, name in network.populations.items():
        found = network.graph.nodes[name].v_threshold
        if (found != found.flat[0]).any():
            raise ConversionError(
                f"Importing into {simulator}: {source!r} has thresholds from {found.min():g} to {found.max():g}, and "
                f"{simulator} knows one for each population. Convert with one threshold a layer (such as 'max'), or "
                "take sinabs."
            )
