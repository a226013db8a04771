"""SpikingJelly runs a network of ours spike for spike once it is told three things.

v_reset = None   its importer makes hard resets
v = start        NIR has no field for it
dt = 1           its importer expects r = 1 / dt
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ratenorm.interop.extras import needed
from ratenorm.interop.reader import Network, Reader, add_step_biases, installed, loaded, one_threshold, set_exact_sums


def spikingjelly(network: Network, *, settings: bool = True) -> Reader:
    """A network in SpikingJelly, loaded by its own NIR importer.

    Args:
        network: A spiking network, a conversion, or a NIR file of `export_nir`.
        settings: False leaves everything as the importer made it, to see what that does.

    Returns:
        The network; `module` is SpikingJelly's own, a torch.fx.GraphModule.

    Raises:
        UsageError: If spikingjelly is not installed.
        ConversionError: If the file has average pools as sums, or different thresholds in a population.
    """
    exchange: Any = needed("spikingjelly.activation_based.nir_exchange")
    file = loaded(network)
    one_threshold("SpikingJelly", file)
    module = exchange.import_from_nir(file.graph, dt=1.0).eval()
    neurons = {source: module.get_submodule(name) for source, name in file.populations.items()}
    state: list[Any] = [None]

    def begin(batch: int) -> None:
        state[0] = None
        if settings:
            for source, name in file.populations.items():
                start = file.start(name)
                neurons[source].module.v = start.expand(batch, *start.shape).clone()

    def advance(x: Tensor) -> Tensor:
        out, state[0] = module(x, state[0])
        return torch.as_tensor(out)

    reader = Reader(installed("spikingjelly"), file.net, module, neurons, begin, advance)
    if settings:
        for neuron in neurons.values():
            neuron.module.v_reset = None
        set_exact_sums(file, module.get_submodule)
        add_step_biases(file, reader)
    return reader
