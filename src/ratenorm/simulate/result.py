"""What a simulation gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from ratenorm import notebook
from ratenorm.errors import UsageError


@dataclass(frozen=True)
class Fit:
    """How a population's rates approach the analog rates r^. Sums, so that batches add up to the K of a whole set."""

    error: Tensor  # [T] |r(t) - r^|^2
    total: float  # |r^|_1
    power: float  # |r^|_2^2

    @property
    def k(self) -> Tensor:
        """[T] K(r^, r(t)) of Eq. 7; 0 where both are silent, infinite where only r^ is."""
        return self.error / self.power if self.power > 0 else torch.where(self.error > 0, torch.inf, 0.0)

    @property
    def omega(self) -> float:
        """Omega of Theorem 2; infinite for a silent layer."""
        return self.total / self.power if self.power > 0 else float("inf")


@dataclass(frozen=True)
class LayerActivity:
    """What one population did. Counters are exact integers held in float64; they are sums over the batch."""

    name: str
    neurons: int
    spikes: Tensor  # [T] spikes in each step
    synaptic_ops: Tensor  # [T] spikes in each step, each times its real fan-out
    fit: Fit | None  # against the analog rates; None if not asked for
    first_spike: Tensor | None  # [B, …] step of the first spike from 1, 0 for never; None if not asked for
    neuron_by_neuron: Callable[[], tuple[Tensor, Tensor]]  # counts and potential; brought into order when asked for

    @property
    def counts(self) -> Tensor:
        """[B, …] spikes of each neuron over all steps."""
        return self._states[0]

    @property
    def potential(self) -> Tensor:
        """[B, …] membrane potential after the last step."""
        return self._states[1]

    @cached_property
    def _states(self) -> tuple[Tensor, Tensor]:
        return self.neuron_by_neuron()

    def rates(self, steps: int) -> Tensor:
        """Spikes a step of each neuron."""
        return self.counts / steps


@dataclass(frozen=True, repr=False)
class SimResult:
    """One run over T steps: the answer after every step, and the activity of every population."""

    logits: Tensor  # [T, B, classes], the mean output over the steps so far
    layers: tuple[LayerActivity, ...]
    relays: tuple[tuple[str, Tensor], ...]  # synaptic operations [T] of spikes passed on by max-pools
    engine: str
    choices: dict[str, float] = field(default_factory=dict)  # by layer: the share done by convolution, not by events

    @property
    def steps(self) -> int:
        return len(self.logits)

    @property
    def spikes(self) -> dict[str, Tensor]:
        """Spike counts of each neuron, by population."""
        return {layer.name: layer.counts for layer in self.layers}

    @property
    def spikes_per_step(self) -> Tensor:
        """[T] spikes of the whole network and batch."""
        return torch.stack([layer.spikes for layer in self.layers]).sum(0)

    @property
    def synaptic_ops(self) -> Tensor:
        """[T] synaptic operations of the whole network and batch."""
        return torch.stack([layer.synaptic_ops for layer in self.layers] + [ops for _, ops in self.relays]).sum(0)

    @property
    def membrane_updates(self) -> int:
        """Neuron updates of a step, for the whole batch: every neuron, spike or not."""
        return sum(layer.neurons for layer in self.layers) * self.logits.shape[1]

    def read_out_from(self, first: int) -> Tensor:
        """[T - first + 1, B, classes] mean outputs over the steps from `first` on: a late read-out.

        The first steps are run but not counted, as the last layer still hears nothing. The answer after step t still
        takes t steps.
        """
        if not 1 <= first <= self.steps:
            raise UsageError(f"Reading out late: the first step is {first}; it must lie in 1 to {self.steps}.")
        steps = torch.arange(1, self.steps + 1, dtype=torch.float64).view(-1, 1, 1)
        sums = self.logits.double() * steps
        left_out = sums[first - 2] if first > 1 else torch.zeros_like(sums[0])
        later = (sums[first - 1 :] - left_out) / (steps[first - 1 :] - (first - 1))
        return later.to(self.logits.dtype)

    def accuracy(self, labels: Tensor) -> Tensor:
        """[T] fraction of the batch answered right after each step."""
        return (self.logits.argmax(-1) == labels.to(self.logits.device)).double().mean(1)

    def __repr__(self) -> str:
        return f"SimResult({self})"

    def _repr_html_(self) -> str:
        rows = [
            (layer.name, f"{layer.neurons:,}", f"{float(layer.spikes.sum()) / max(1, layer.neurons):.3g}")
            for layer in self.layers
        ]
        spikes = notebook.line_plot("spikes in a step", self.spikes_per_step.tolist())
        return notebook.table(str(self), ("population", "neurons", "spikes per neuron, all images"), rows) + spikes

    def __str__(self) -> str:
        batch = self.logits.shape[1]
        neurons = sum(layer.neurons for layer in self.layers)
        per_neuron = float(self.spikes_per_step.sum()) / max(1, neurons * batch)
        return (
            f"{batch} images, {self.steps} steps on the {self.engine} engine: {per_neuron:.2f} spikes per neuron, "
            f"{float(self.synaptic_ops.sum()) / batch:.3g} synaptic operations an image{said_of(self.choices)}"
        )


def said_of(choices: Mapping[str, float]) -> str:
    """What the event engine chose, in words; nothing for the dense engine."""
    if not choices:
        return ""
    if convolved := [f"{name} ({share:.0%})" for name, share in choices.items() if share]:
        return f"; by convolution: {', '.join(convolved)}, by events: what is left of all {len(choices)} layers"
    return f"; by events in all {len(choices)} layers"
