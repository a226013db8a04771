"""sinabs runs a network of ours spike for spike once it is told five things.

spike_fn = SingleSpike        its default sends several spikes a step
min_v_mem = None              its importer cuts potentials off at -threshold
reset_fn = MembraneSubtract   as its default, said to be sure
v_mem = start                 NIR has no field for it
execution_order               nirtorch, which it loads with, runs a layer before all of its inputs are there
"""

from __future__ import annotations

import warnings
from typing import Any, cast

import torch
from torch import Tensor, nn

from ratenorm.interop.extras import needed
from ratenorm.interop.reader import Network, Reader, add_step_biases, installed, loaded, set_exact_sums


def sinabs(network: Network, *, settings: bool = True) -> Reader:
    """A network in sinabs, loaded by its own NIR importer. Thresholds may differ by channel.

    Args:
        network: A spiking network, a conversion, or a NIR file of `export_nir`.
        settings: False leaves everything as the importer made it, to see what that does.

    Returns:
        The network; `module` is sinabs' own.

    Raises:
        UsageError: If sinabs is not installed.
        ConversionError: If the file cannot be read by sinabs.
    """
    importer: Any = needed("sinabs.nir")
    activation: Any = needed("sinabs.activation")
    file = loaded(network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its importer uses a function of nirtorch that will go
        module: nn.Module = importer.from_nir(file.graph, num_timesteps=1).eval()
    order = list(file.graph.nodes)
    places: Any = module
    places.execution_order = sorted(places.graph.node_list, key=lambda node: order.index(node.name))
    neurons = {source: module.get_submodule(name) for source, name in file.populations.items()}
    state: list[Any] = [None]

    def begin(batch: int) -> None:
        state[0] = None
        for source, name in file.populations.items():
            start, neuron = file.start(name), cast(Any, neurons[source])
            neuron.init_state_with_shape((batch, *start.shape))
            if settings:
                neuron.v_mem = start.expand(batch, *start.shape).clone()

    def advance(x: Tensor) -> Tensor:
        out, state[0] = module(x, state[0])
        return torch.as_tensor(out)

    reader = Reader(installed("sinabs"), file.net, module, neurons, begin, advance)
    if settings:
        for found in neurons.values():
            neuron: Any = found
            neuron.spike_fn, neuron.reset_fn = activation.SingleSpike, activation.MembraneSubtract()
            neuron.min_v_mem = None
        set_exact_sums(file, module.get_submodule)
        add_step_biases(file, reader)
    return reader
