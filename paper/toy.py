"""Figures 2 and 3: one layer and one toy network, by the paper's equations alone, without training."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ratenorm.core.coding import Coding, Constant, Poisson
from ratenorm.core.neuron import integrate_and_fire
from ratenorm.core.rate_norm import RateNorm

DOTS = 15  # neurons simulated for each threshold of figure 2
INPUTS = 256  # random inputs from which the thresholds of figure 3 are taken


def rate_norm_response(p: Sequence[float], running_max: float, points: int, steps: int) -> dict[str, Any]:
    """r^ of the layer over x for several p, and the rate of the neuron with the same threshold after `steps` steps."""
    x = torch.linspace(-0.2, 1.2, points) * running_max
    some = x[:: max(1, (points - 1) // (DOTS - 1))]
    curves = []
    for fraction in p:
        layer = RateNorm().eval()
        layer.running_max.fill_(running_max)
        layer.p.fill_(fraction)
        threshold = float(layer.threshold)
        curves.append(
            {
                "p": fraction,
                "threshold": threshold,
                "rate": layer(x).tolist(),
                "spiking_rate": _spiking_rates(some, threshold, steps).tolist(),
            }
        )
    return {"x": x.tolist(), "spiking_x": some.tolist(), "curves": curves}


def _spiking_rates(current: Tensor, threshold: float, steps: int) -> Tensor:
    """Spikes a step of neurons that are given the same current at every step, from v(0) = 0."""
    potential, count = torch.zeros_like(current), torch.zeros_like(current)
    for _ in range(steps):
        spikes, potential = integrate_and_fire(potential, current, threshold)
        count += spikes
    return count / steps


def toy_firing_rates(sizes: Sequence[int], samplings: int, steps: int, seed: int) -> dict[str, Any]:
    """Rates so far of the output neurons of a random network, [sampling][neuron][T] for each coding.

    Thresholds are the largest activation over random inputs (Max Norm); every sampling starts every membrane somewhere
    in [0, theta).
    """
    g = torch.Generator().manual_seed(seed)
    # a positive mean, so that few neurons are silent
    weights = [(torch.randn(b, a, generator=g) + 0.5) / a**0.5 for a, b in itertools.pairwise(sizes)]
    inputs = torch.rand(INPUTS, sizes[0], generator=g)
    rates, thresholds = inputs, []
    for weight in weights:
        current = rates @ weight.T
        thresholds.append(float(current.max()))
        rates = (current / thresholds[-1]).clamp(0, 1)
    shown = _told_apart(rates)
    x = inputs[shown].expand(samplings, -1)
    starts = [torch.rand(samplings, n, generator=g) for n in sizes[1:]]
    found: dict[str, Any] = {"analog": rates[shown].tolist()}
    for name, coding in (("constant", Constant()), ("poisson", Poisson(1.0, seed))):
        found[name] = _simulated(x, coding, weights, thresholds, starts, steps).tolist()
    return found


def _told_apart(rates: Tensor) -> int:
    """The input [N, outputs] whose output neurons answer with rates farthest from each other and from 0 and 1."""
    ends = torch.tensor([0.0, 1.0]).expand(len(rates), -1)
    return int(torch.cat([rates, ends], 1).sort(1).values.diff(dim=1).amin(1).argmax())


def _simulated(
    x: Tensor,
    coding: Coding,
    weights: Sequence[Tensor],
    thresholds: Sequence[float],
    starts: Sequence[Tensor],
    steps: int,
) -> Tensor:
    """Rates so far of the last layer, [sampling, neuron, T]."""
    potentials = [start * threshold for start, threshold in zip(starts, thresholds, strict=True)]
    count, rates = torch.zeros_like(potentials[-1]), []
    for step in range(steps):
        signal = coding.encode(x, step)
        for i, (weight, threshold) in enumerate(zip(weights, thresholds, strict=True)):
            signal, potentials[i] = integrate_and_fire(potentials[i], signal @ weight.T, threshold)
        count = count + signal
        rates.append(count / (step + 1))
    return torch.stack(rates, dim=-1)
