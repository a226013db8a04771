"""BatchNorm's statistics, taken anew when a training is over.

While it lasts they follow the weights of each step, and with `Stage1(steps=…)` the rates of another number of steps
each time. What remains is an average of the weights (`ema`) that will be asked after some number of steps: a network
that the statistics were never taken of. So they are, for the number that is named.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from ratenorm.core.rate_norm import rate_norm_layers
from ratenorm.data import Batches
from ratenorm.train.loop import evaluating, fitted
from ratenorm.train.rates import after_steps

IMAGES = 8000  # some sixty batches: their mean is an eighth as noisy as one of them

_BatchNorm = nn.modules.batchnorm._BatchNorm


def settle_(model: nn.Module, batches: Batches, steps: int | None, epoch: int = 0, images: int = IMAGES) -> None:
    """Give every BatchNorm the mean of the statistics of the batches of `epoch`, until so many images were seen, with
    the rates that Rate Norm layers have after so many steps (None: in the limit).

    Like a step of the training each batch is normalised by its own statistics; all else is as in evaluation. Where
    several processes share the batches, call it within `global_batch_norm`.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    if not layers:
        return
    rates = [layer for _, layer in rate_norm_layers(model)]
    with evaluating(model), _counting(layers), after_steps(rates, steps):
        for seen, _ in itertools.islice(batches.epoch(epoch), math.ceil(images / batches.batch_size)):
            model(fitted(seen, model))


@contextmanager
def _counting(layers: list[_BatchNorm]) -> Iterator[None]:
    """Layers that start anew and weigh all batches alike."""
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
        layer.train()
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
