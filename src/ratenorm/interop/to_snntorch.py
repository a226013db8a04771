"""snnTorch runs a network of ours spike for spike once it is told six things.

beta = 1, reset_delay = True    its importer makes leaky neurons of beta 0.9
init_hidden = True              otherwise its neurons hand on a pair, and the next layer fails
mem = start                     NIR has no field for it
spike_grad: fires at v >= theta its own function fires at v > theta
state_function                  it adds the current before it subtracts the threshold, which rounds differently
Flatten from dimension 1        its importer flattens the batch as well
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm.interop.extras import needed
from ratenorm.interop.reader import Network, Reader, add_step_biases, installed, loaded, one_threshold, set_exact_sums


def snntorch(network: Network, *, settings: bool = True) -> Reader:
    """A network in snnTorch, loaded by its own NIR importer.

    Args:
        network: A spiking network, a conversion, or a NIR file of `export_nir`.
        settings: False sets only what it cannot run without: `init_hidden` and the first dimension of Flatten.

    Returns:
        The network; `module` is snnTorch's own, a torch.fx.GraphModule.

    Raises:
        UsageError: If snntorch is not installed.
        ConversionError: If a population has different thresholds.
    """
    importer: Any = needed("snntorch.import_nir")
    file = loaded(network)
    one_threshold("snnTorch", file)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does
        module: nn.Module = importer.import_from_nir(file.graph).eval()
    neurons = {source: module.get_submodule(name) for source, name in file.populations.items()}
    for flatten in module.modules():
        if isinstance(flatten, nn.Flatten):
            flatten.start_dim = 1

    def begin(batch: int) -> None:
        for source, name in file.populations.items():
            start = file.start(name) if settings else torch.zeros(file.graph.nodes[name].v_threshold.shape)
            neurons[source].mem = start.expand(batch, *start.shape).clone()

    def advance(x: Tensor) -> Tensor:
        return torch.as_tensor(module(x)[0])

    reader = Reader(installed("snntorch"), file.net, module, neurons, begin, advance)
    for found in neurons.values():
        neuron: Any = found
        neuron.init_hidden = True
        if settings:
            neuron.beta = torch.tensor(1.0)
            neuron.reset_delay = True
            neuron.spike_grad = fires_at_threshold
            neuron.state_function = _subtract_first(neuron)
    if settings:
        set_exact_sums(file, module.get_submodule)
        add_step_biases(file, reader)
    return reader


def fires_at_threshold(above: Tensor) -> Tensor:
    """1 where the potential is at the threshold or above."""
    return (above >= 0).to(above.dtype)


def _subtract_first(neuron: Any) -> Any:
    """The next potential: the threshold of the last spike is subtracted before the current is added."""

    def state_function(current: Tensor) -> Tensor:
        return torch.as_tensor((neuron.mem - neuron.reset * neuron.threshold) + current)

    return state_function
