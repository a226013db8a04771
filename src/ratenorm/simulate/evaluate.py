"""`evaluate`: a spiking network over a labelled set, batch by batch, in constant memory. Every figure is a sum
over images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ratenorm import distributed
from ratenorm.arguments import check_count, check_images, check_labels
from ratenorm.contexts import undisturbed_call
from ratenorm.core.coding import Coding
from ratenorm.data.own_data import batches_of
from ratenorm.errors import DataError, UsageError
from ratenorm.graph.net import Converted, SpikingNet, run, spiking_net
from ratenorm.simulate.heap import give_back
from ratenorm.simulate.neurobench import images_measured, neurobench_metrics
from ratenorm.simulate.result import Fit, LayerActivity, SimResult
from ratenorm.simulate.simulate import EngineName, simulate

BINS = 20  # of the histogram of rates
BATCHES_BETWEEN_TRIMS = 32


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
        neurons = torch.bincount(layer.counts.flatten().int().cpu(), minlength=steps + 1)  # that spiked 0, 1, … T times
        # bin k holds rates in [k/20, (k+1)/20), the last one 1 as well
        bins = (torch.arange(steps + 1).double() * BINS / steps).long().clamp_(max=BINS - 1)
        self.rates.index_add_(0, bins, neurons)
        self.saturated += int(neurons[max(1, steps - 1) :].sum())
        self.dead += int(neurons[0])
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
    convolved: dict[str, float] = field(default_factory=dict)  # by layer: images times the share done by convolution
    neurobench: dict[str, Any] | None = None  # of the first images, where it was asked for

    @property
    def choices(self) -> dict[str, float]:
        """By layer the share of its work that was done by convolution instead of events; nothing if all was dense."""
        return {name: amount / self.images for name, amount in self.convolved.items()}

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
        for name, share in result.choices.items():
            self.convolved[name] = self.convolved.get(name, 0.0) + share * len(labels)
        self.images += len(labels)
        self.correct += (result.logits.argmax(-1).cpu() == labels.cpu()).sum(1)
        self.analog_correct += int((analog.argmax(-1).cpu() == labels.cpu()).sum())

    def join_(self) -> None:
        """Replace the sums by those over all processes: sums of whole numbers (but for K), exact in any order."""
        if distributed.world().size == 1:
            return
        counts = distributed.total(torch.tensor([self.images, self.analog_correct]))
        self.images, self.analog_correct = int(counts[0]), int(counts[1])
        self.correct = distributed.total(self.correct)
        self.relay_ops = distributed.total(self.relay_ops)
        shares = distributed.total(torch.tensor(list(self.convolved.values()), dtype=torch.float64))
        self.convolved = dict(zip(self.convolved, shares.tolist(), strict=True))
        for layer in self.layers:
            layer.spikes, layer.synaptic_ops = distributed.total(layer.spikes), distributed.total(layer.synaptic_ops)
            layer.rates = distributed.total(layer.rates)
            states = distributed.total(torch.tensor([layer.saturated, layer.dead, layer.negative]))
            layer.saturated, layer.dead, layer.negative = (int(n) for n in states)
            layer.fit = _joined_fit(layer.fit, self.steps)


class Part(NamedTuple):
    """A process's part of a batch that several share: which images of the set it holds."""

    images: Tensor
    labels: Tensor
    first_image: int  # number in the whole set of the part's first image
    batch_start: int  # and of the whole batch's


def _joined_fit(fit: Fit | None, steps: int) -> Fit | None:
    sums = torch.zeros(steps + 3, dtype=torch.float64)
    if fit is not None:
        sums[:steps], sums[steps:] = fit.error.cpu(), torch.tensor([fit.total, fit.power, 1.0], dtype=torch.float64)
    sums = distributed.total(sums)
    return Fit(sums[:steps], float(sums[steps]), float(sums[steps + 1])) if sums[steps + 2] > 0 else None


@undisturbed_call
def evaluate(
    net: SpikingNet | Converted,
    batches: Iterable[tuple[Tensor, Tensor] | Part],
    steps: int,
    *,
    engine: EngineName = "auto",
    coding: Coding | None = None,
    fit_images: int | None = None,
    progress: Callable[[Evaluation], None] | None = None,
    so_far: Evaluation | None = None,
    neurobench: bool = False,
) -> Evaluation:
    """Accuracy after every step, spikes, synaptic operations and K curves over (images, labels) batches.

    `fit_images` bounds the images on which K is measured (it compares every neuron at every step); None means all.
    `so_far` are the sums of batches done before: the evaluation goes on from them and `batches` are the remaining ones.
    `neurobench` measures the metrics of NeuroBench too, on the first images, at most 20 of them.
    Under torchrun each process gives the parts (`Part`) it has, and all get the sums over all of them.
    """
    net = spiking_net(net)
    check_count("Evaluating", "steps", steps)
    if len(shape := net.shapes[net.output]) != 1:
        raise UsageError(
            f"Evaluating: the network gives outputs of shape {list(shape)}; accuracy needs one number for each class, "
            "[classes]. Use `simulate` and compare its outputs with what you expect."
        )
    total = Evaluation(steps) if so_far is None else so_far
    for number, batch in enumerate(batches_of(batches, net.input_shape, "Evaluating"), 1):
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise DataError(
                f"Evaluating: batch {number} is a {type(batch).__name__}; give pairs (images, labels), for example "
                "`[(x, y)]`."
            )
        images, labels = batch[0], batch[1]
        first, start_of_batch = (batch[2], batch[3]) if isinstance(batch, Part) else (total.images, total.images)
        check_images("Evaluating", f"batch {number}", images)
        check_labels("Evaluating", labels, len(images))
        fit = fit_images is None or start_of_batch < fit_images
        start = time.perf_counter()
        result = simulate(net, images, steps, engine=engine, coding=coding, fit=fit, first_image=first)
        total.seconds += time.perf_counter() - start
        with torch.no_grad():
            analog = run(net, images.to(net.device))
        total.add(result, analog, labels)
        if neurobench and first == 0 and len(images):
            few = images[: images_measured(len(images), steps)]
            total.neurobench = neurobench_metrics(net, few, steps, coding=coding)
        if number % BATCHES_BETWEEN_TRIMS == 0:
            give_back()
        if progress is not None:
            progress(total)
    total.join_()
    if total.images == 0:
        raise DataError("Evaluating: there is no image. Give at least one batch of (images, labels).")
    return total
