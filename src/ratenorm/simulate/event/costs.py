"""What things cost, in nanoseconds on one core with 512-bit vectors; only their ratios matter.

See benchmarks/engine.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from ratenorm.simulate.event.routes import Route

ENTRY = 1.4  # to take up a listed spike for a block
ADDITION = 1 / 34  # to add one weight
SHORT_ADDITION = 1 / 90  # in 16 bits
MULTIPLY_ADD = 1 / 85  # in a dense convolution, the padding included
UNPACK = 1.5  # to hand one neuron's spike of a step to torch, pooled, and to take back a current
REORDER = 7.0  # to bring one weight into the order of a dense convolution, in every chunk


def of_a_spike(route: Route, blocks: int, short: bool) -> float:
    """To list one that goes over a route to so many blocks."""
    inputs = max(1, route.grid * len(route.weight))
    return blocks * ENTRY + route.additions / inputs * (SHORT_ADDITION if short else ADDITION)


def of_convolution(routes: Sequence[Route], pixels: int) -> tuple[float, float]:
    """To let torch compute what comes over some routes, for each row and once in a chunk."""
    read = {route.source: route for route in routes}
    neurons = sum(len(r.weight) * (r.grid if r.windows is None else r.windows.size) for r in read.values())
    weights = sum(route.weight.numel() for route in routes)
    return neurons * UNPACK + MULTIPLY_ADD * weights * pixels, REORDER * weights
