"""How much memory a simulation will take, said before it starts instead of found out when it is gone."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from ratenorm.errors import SimulationError
from ratenorm.graph.net import SpikingNet

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Memory:
    """An estimate in bytes. Only `answers` depends on the number of steps."""

    state: int  # potentials, counts and what else is kept for every neuron and image
    work: int  # what a chunk of steps needs while it runs
    answers: int  # the outputs after every step

    @property
    def total(self) -> int:
        return self.state + self.work + self.answers

    def __str__(self) -> str:
        parts = (f"{name} {value / 2**20:.0f} MB" for name, value in vars(self).items())
        return f"{self.total / 2**20:.0f} MB ({', '.join(parts)})"


def estimate_memory(
    net: SpikingNet,
    images: int,
    steps: int,
    *,
    chunk: int = 1,
    fit: bool = False,
    first_spikes: bool = False,
) -> Memory:
    """What `simulate` will take for a batch, on either engine: the larger of the two.

    `chunk` is that of the dense engine; the event engine lists its spikes in room of its own, which is far smaller
    than the activations of a dense chunk.
    """
    neurons = sum(net.neurons.values())
    each = 4 + 3 * fit + first_spikes  # numbers kept for a neuron: potential and count, and a copy of both as results
    live = sum(net.sizes[:3])  # a layer's input and output, and one more on a skip connection
    state = neurons * each * FLOAT * images
    outputs = math.prod(net.shapes[net.output])
    return Memory(state, live * FLOAT * images * chunk, 2 * outputs * FLOAT * images * steps)


def available_memory() -> int | None:
    """Bytes that can still be had, or None where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def check_memory(need: Memory, images: int, available: int | None) -> None:
    """Refuse a batch that cannot fit, and say which would."""
    if available is None or need.total <= available:
        return
    fitting = max(1, int(images * available / need.total))
    raise SimulationError(
        f"Simulating {images} images: this takes about {need}, and {available / 2**20:.0f} MB are free. "
        f"Simulate about {fitting} images at a time (`evaluate` goes batch by batch), or a smaller chunk of steps."
    )
