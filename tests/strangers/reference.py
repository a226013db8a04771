"""A spiking network in plain torch: the user's own module with a neuron in place of every activation.

Shares nothing with the package: no tracing, no folding, no grid, no engine. Float64, step by step.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Neuron(nn.Module):
    """Integrate and fire, soft reset; a spike stands for `amplitude`."""

    def __init__(self, threshold: Tensor, amplitude: Tensor, v0: float) -> None:
        super().__init__()
        self.threshold, self.amplitude = threshold.double(), amplitude.double()
        self.potential, self.count = self.threshold * v0, torch.zeros(())

    def forward(self, current: Tensor) -> Tensor:
        charged = self.potential + current
        spikes = (charged >= self.threshold).double()
        self.potential = charged - self.threshold * spikes
        self.count = self.count + spikes
        return spikes * self.amplitude


class LargestCount(nn.Module):
    """Passes on by how much the largest sum of each window has grown."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool, self.seen, self.largest = pool, torch.zeros(()), torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        self.seen, before = self.seen + x, self.largest
        self.largest = self.pool(self.seen)
        return self.largest - before


@torch.no_grad()
def reference(
    model: nn.Module, scales: dict[str, tuple[Tensor, Tensor]], x: Tensor, steps: int, v0: float = 0.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean outputs after each step [T, B, …], and how often every neuron fired; thresholds and amplitudes by name."""
    model = copy.deepcopy(model).double().eval()
    for name, module in list(model.named_modules()):
        parent, _, child = name.rpartition(".")
        if name in scales:
            setattr(model.get_submodule(parent), child, Neuron(*scales[name], v0))
        elif isinstance(module, nn.MaxPool1d | nn.MaxPool2d):
            setattr(model.get_submodule(parent), child, LargestCount(module))
    outputs = torch.stack([model(x.double()) for _ in range(steps)])
    time = torch.arange(1, steps + 1).view(-1, *[1] * (outputs.ndim - 1))
    return outputs.cumsum(0) / time, {n: m.count for n, m in model.named_modules() if isinstance(m, Neuron)}


@torch.no_grad()
def clipped(model: nn.Module, scales: dict[str, tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """The clipped ANN: where the rates tend to, amplitude times clip(x / threshold, 0, 1)."""
    model = copy.deepcopy(model).double().eval()
    for name, (threshold, amplitude) in scales.items():

        def clip(
            _: nn.Module, given: tuple[Tensor], __: Tensor, t: Tensor = threshold, a: Tensor = amplitude
        ) -> Tensor:
            return a.double() * (given[0] / t.double()).clamp(0.0, 1.0)

        module = model.get_submodule(name)
        module.register_forward_hook(clip)
        if getattr(module, "inplace", False):
            raise ValueError(f"{name} works in place")
    return model(x.double())
