"""`simulate`: one call, any engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from ratenorm.arguments import check_count, check_finite, check_images, check_kind
from ratenorm.core.coding import Coding, Constant, Poisson
from ratenorm.errors import DataError, SimulationError, UsageError
from ratenorm.graph.net import Converted, SpikingNet, check_input, spiking_net
from ratenorm.simulate.dense import DenseSimulation, chunks
from ratenorm.simulate.engine_name import EngineName as EngineName
from ratenorm.simulate.event import available
from ratenorm.simulate.memory import available_memory, check_memory, estimate_memory
from ratenorm.simulate.result import SimResult

if TYPE_CHECKING:
    from ratenorm.simulate.event.simulation import EventSimulation

ENGINES: tuple[EngineName, ...] = ("auto", "dense", "event")
UNASKED = 64 << 20  # bytes that are there: to ask the system takes as long as a small layer


def simulate(
    net: SpikingNet | Converted,
    x: Tensor,
    steps: int,
    *,
    engine: EngineName = "auto",
    coding: Coding | None = None,
    fit: bool = False,
    first_spikes: bool = False,
    chunk: int = 1,
    first_image: int = 0,
    compiled: bool | None = None,
) -> SimResult:
    """Run a spiking network on a batch for `steps` steps; the answer after every step comes from this one run.

    `engine` is "dense" (torch, any device), "event" (CPU, the work follows the spikes), or "auto": events on the CPU,
    layer by layer, with convolution where spikes are many; the dense engine elsewhere. `fit` compares the rates with
    the analog ones at every step (K curve), `first_spikes` notes when each neuron fired first. `chunk` is the number of
    steps that the dense engine stacks into one batch: it changes speed and memory, never the result. `compiled` runs
    its step through `torch.compile`; None: on a GPU.
    """
    net = spiking_net(net)
    check_images("Simulating", "the batch", x)
    check_count("Simulating", "steps", steps)
    check_count("Simulating", "chunk", chunk)
    if net.device.type == "cpu":
        need = estimate_memory(net, len(x), steps, chunk=chunk, fit=fit, first_spikes=first_spikes)
        if need.total > UNASKED:
            check_memory(need, len(x), available_memory())
    simulation = start(
        net, x, engine, coding, fit=fit, first_spikes=first_spikes, first_image=first_image, compiled=compiled
    )
    if isinstance(simulation, DenseSimulation):
        for size in chunks(steps, chunk):
            simulation.advance(size)
    else:
        simulation.advance(steps)
    return simulation.result()


def start(
    net: SpikingNet | Converted,
    x: Tensor,
    engine: EngineName = "auto",
    coding: Coding | None = None,
    *,
    fit: bool = False,
    first_spikes: bool = False,
    first_image: int = 0,
    compiled: bool | None = None,
) -> DenseSimulation | EventSimulation:
    """A simulation before its first step, on the engine asked for, or on the dense one where that cannot run."""
    net = spiking_net(net)
    if engine not in ENGINES:
        raise UsageError(f"Simulating: the engine is {engine!r}; it must be one of {', '.join(ENGINES)}.")
    check_images("Simulating", "the batch", x)
    check_input(net, x)
    if coding is not None:
        check_kind("Simulating", "the coding", coding, (Constant, Poisson), "Constant() or Poisson()")
    if len(x) == 0:
        raise DataError("Simulating: there is no image in the batch. Give at least one.")
    if x.is_floating_point() and len(net.dtypes) == 1:
        x = x.detach().to(next(iter(net.dtypes)))  # float64 images of a float32 network give what float32 images give
    check_finite("Simulating", x, first_image)
    reason = None if engine == "dense" else available.unfit(net, x)
    if reason is not None and engine == "event":
        raise SimulationError(f"Simulating on the event engine: {reason}. Move or convert both, or use engine='auto'.")
    if engine != "dense" and reason is None:
        missing = available.missing()
        if missing is None:
            from ratenorm.simulate.event.simulation import EventSimulation  # imports the core

            return EventSimulation(
                net, x, coding, fit=fit, first_spikes=first_spikes, first_image=first_image, choose=engine == "auto"
            )
        available.warn_once(missing)
    return DenseSimulation(
        net, x, coding, fit=fit, first_spikes=first_spikes, first_image=first_image, compiled=compiled
    )


def stream(
    net: SpikingNet | Converted,
    x: Tensor,
    steps: int,
    *,
    engine: EngineName = "auto",
    coding: Coding | None = None,
    first_image: int = 0,
) -> Iterator[Tensor]:
    """The mean output after each step, [B, classes], as soon as the step is done."""
    check_count("Simulating", "steps", steps)
    simulation = start(net, x, engine, coding, first_image=first_image)
    for _ in range(steps):
        yield simulation.advance(1)[0]
