"""`simulate`: one call, any engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from torch import Tensor

from ratenorm.core.coding import Coding
from ratenorm.engines.dense import DenseSimulation, chunks
from ratenorm.engines.result import SimResult
from ratenorm.errors import UsageError
from ratenorm.graph.net import SpikingNet

EngineName = Literal["auto", "dense", "event"]
ENGINES: tuple[EngineName, ...] = ("auto", "dense", "event")


def simulate(net: SpikingNet, x: Tensor, steps: int, *, engine: EngineName = "auto", coding: Coding | None = None,
             fit: bool = False, first_spikes: bool = False, chunk: int = 1, first_image: int = 0) -> SimResult:
    """Run a spiking network on a batch for `steps` steps; the answer after every step comes from this one run.

    `fit` compares the rates with the analog ones at every step (K curve), `first_spikes` notes when each neuron fired
    first. `chunk` is the number of steps stacked into one batch: it changes speed and memory, never the result.
    """
    if steps < 1 or chunk < 1:
        raise UsageError(f"Simulating: steps is {steps} and chunk {chunk}; both must be at least 1.")
    if engine not in ENGINES:
        raise UsageError(f"Simulating: the engine is {engine!r}; it must be one of {', '.join(ENGINES)}.")
    simulation = DenseSimulation(net, x, coding, fit=fit, first_spikes=first_spikes, first_image=first_image)
    for size in chunks(steps, chunk):
        simulation.advance(size)
    return simulation.result()


def stream(net: SpikingNet, x: Tensor, steps: int, *, coding: Coding | None = None,
           first_image: int = 0) -> Iterator[Tensor]:
    """The mean output after each step, [B, classes], as soon as the step is done."""
    simulation = DenseSimulation(net, x, coding, first_image=first_image)
    for _ in range(steps):
        yield simulation.advance(1)[0]
