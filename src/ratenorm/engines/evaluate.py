"""`evaluate`: a spiking network over a labelled set, batch by batch, in constant memory. Every figure is a sum
over images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ratenorm.core.coding import Coding
from ratenorm.engines.result import Fit, LayerActivity, SimResult
from ratenorm.engines.simulate import EngineName, simulate
from ratenorm.errors import DataError
from ratenorm.graph.net import SpikingNet, run

BINS = 20  # of the histogram of rates


@dataclass
class LayerTotals:
    """What one population did over all images."""

    name: str
    neurons: int
    spikes: Tensor  # [T]
    synaptic_ops: Tensor  # [T]
    rates: Tensor  # [BINS] histogram of rates at step T
    saturated: int = 0
    dead: int = 0
    negative: int = 0
    fit: Fit | None = None

    def add(self, layer: LayerActivity, steps: int) -> None:
        self.spikes += layer.spikes.cpu()
        self.synaptic_ops += layer.synaptic_ops.cpu()
        # counts are whole numbers: bin k holds rates in [k/20, (k+1)/20), the last one 1 as well
        index = (layer.counts.flatten().double() * BINS / steps).long().clamp_(max=BINS - 1)
        self.rates += torch.bincount(index.cpu(), minlength=BINS)
        self.saturated += int((layer.counts >= steps - 1).sum()) if steps > 1 else int((layer.counts >= 1).sum())
        self.dead += int((layer.counts == 0).sum())
        self.negative += int((layer.potential < 0).sum())
        if layer.fit is not None:
            old = self.fit
            self.fit = (
                layer.fit
                if old is None
                else Fit(old.error + layer.fit.error, old.total + layer.fit.total, old.power + layer.fit.power)
            )


@dataclass
class Evaluation:
    """Sums over all images seen so far; divide by `images` for means."""

    steps: int
    images: int = 0
    correct: Tensor = field(default_factory=lambda: torch.zeros(0))  # [T]
    analog_correct: int = 0
    layers: list[LayerTotals] = field(default_factory=list)
    relay_ops: Tensor = field(default_factory=lambda: torch.zeros(0))  # [T]
    seconds: float = 0.0
    engine: str = ""

    @property
    def accuracy(self) -> list[float]:
        """Fraction right when answering after step 1, 2, … T."""
        return (self.correct.double() / self.images).tolist()

    @property
    def analog_accuracy(self) -> float:
        """Fraction right of the clipped ANN, to which the spiking network converges."""
        return self.analog_correct / self.images

    @property
    def neurons(self) -> int:
        return sum(layer.neurons for layer in self.layers)

    @property
    def spikes(self) -> Tensor:
        """[T] spikes of the whole network."""
        return torch.stack([layer.spikes for layer in self.layers]).sum(0)

    @property
    def synaptic_ops(self) -> Tensor:
        """[T] synaptic operations of the whole network, those behind max-pools included."""
        return torch.stack([layer.synaptic_ops for layer in self.layers]).sum(0) + self.relay_ops

    def add(self, result: SimResult, analog: Tensor, labels: Tensor) -> None:
        if not self.layers:
            self.correct = torch.zeros(self.steps, dtype=torch.int64)
            self.relay_ops = torch.zeros(self.steps, dtype=torch.float64)
            self.engine = result.engine
            self.layers = [
                LayerTotals(
                    layer.name,
                    layer.neurons,
                    torch.zeros(self.steps, dtype=torch.float64),
                    torch.zeros(self.steps, dtype=torch.float64),
                    torch.zeros(BINS, dtype=torch.int64),
                )
                for layer in result.layers
            ]
        for totals, layer in zip(self.layers, result.layers, strict=True):
            totals.add(layer, self.steps)
        for _, ops in result.relays:
            self.relay_ops += ops.cpu()
        self.images += len(labels)
        self.correct += (result.logits.argmax(-1).cpu() == labels.cpu()).sum(1)
        self.analog_correct += int((analog.argmax(-1).cpu() == labels.cpu()).sum())


def evaluate(
    net: SpikingNet,
    batches: Iterable[tuple[Tensor, Tensor]],
    steps: int,
    *,
    engine: EngineName = "auto",
    coding: Coding | None = None,
    fit_images: int | None = None,
    progress: Callable[[Evaluation], None] | None = None,
) -> Evaluation:
    """Accuracy after every step, spikes, synaptic operations and K curves over (images, labels) batches.

    `fit_images` bounds the images on which K is measured (it compares every neuron at every step); None means all.
    """
    total = Evaluation(steps)
    for images, labels in batches:
        if len(images) != len(labels):
            raise DataError(f"Evaluating: a batch has {len(images)} images and {len(labels)} labels.")
        fit = fit_images is None or total.images < fit_images
        start = time.perf_counter()
        result = simulate(net, images, steps, engine=engine, coding=coding, fit=fit, first_image=total.images)
        total.seconds += time.perf_counter() - start
        with torch.no_grad():
            analog = run(net, images.to(net.device))
        total.add(result, analog, labels)
        if progress is not None:
            progress(total)
    if total.images == 0:
        raise DataError("Evaluating: there is no image. Give at least one batch of (images, labels).")
    return total
