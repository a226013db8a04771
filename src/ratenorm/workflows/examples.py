"""Looking inside single answers: scores over time, when they settled, which layers were late, who fired when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ratenorm.data import ImageSet
from ratenorm.graph.net import SpikingNet
from ratenorm.io.networks import NetworkSpec
from ratenorm.simulate.dense import DenseSimulation

RASTER_NEURONS = 64


def look_inside(
    run: str, net: SpikingNet, images: ImageSet, spec: NetworkSpec, indices: Sequence[int], steps: int
) -> list[dict[str, Any]]:
    """The `examples` entries of a record for some images of a set. Runs the reference engine, one image at a time."""
    return [_one(run, net, images, spec, index, steps) for index in indices if index < len(images)]


def _one(run: str, net: SpikingNet, images: ImageSet, spec: NetworkSpec, index: int, steps: int) -> dict[str, Any]:
    picture, label = images[index]
    simulation = DenseSimulation(net, spec.normalisation(picture.unsqueeze(0)), fit=True, first_spikes=True)
    chosen = {node.name: _spread(net.neurons[node.name]) for node in net.populations}
    rasters: dict[str, list[list[int]]] = {name: [] for name in chosen}
    before = {name: torch.zeros(net.neurons[name]) for name in chosen}
    for step in range(1, steps + 1):
        simulation.advance(1)
        for name, population in simulation.populations.items():
            counts = population.counts.flatten()
            fired = (counts - before[name])[chosen[name]].nonzero().flatten().tolist()
            rasters[name] += [[step, neuron] for neuron in fired]
            before[name] = counts.clone()
    result = simulation.result()
    scores = result.logits[:, 0]
    layers = []
    for layer in result.layers:
        assert layer.fit is not None
        assert layer.first_spike is not None
        first = layer.first_spike[layer.first_spike > 0]
        layers.append(
            {
                "name": layer.name,
                "k": [k if k == k and k != float("inf") else None for k in layer.fit.k.tolist()],
                "first_spike": int(first.min()) if first.numel() else None,
                "raster": rasters[layer.name],
            }
        )
    return {
        "run": run,
        "index": index,
        "label": int(label),
        "image": _pixels(picture),
        "scores": scores.tolist(),
        "settled": _settled(scores),
        "layers": layers,
    }


def _spread(neurons: int) -> Tensor:
    """Neurons spread evenly over a population."""
    return torch.arange(min(neurons, RASTER_NEURONS)) * neurons // min(neurons, RASTER_NEURONS)


def _settled(scores: Tensor) -> int:
    """The first step from which the answer never changes."""
    answers = scores.argmax(1)
    changed = (answers != answers[-1]).nonzero()
    return int(changed[-1]) + 2 if len(changed) else 1


def _pixels(picture: Tensor) -> list[Any]:
    levels = (picture.clamp(0, 1) * 255).round().to(torch.int64)
    pixels: list[Any] = (levels[0] if len(levels) == 1 else levels.permute(1, 2, 0)).tolist()
    return pixels
