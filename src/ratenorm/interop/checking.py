"""Spike for spike: a network here and in another simulator, every neuron of every layer at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ratenorm.arguments import check_count, check_images
from ratenorm.errors import UsageError
from ratenorm.interop.reader import Network, Reader
from ratenorm.interop.to_sinabs import sinabs
from ratenorm.interop.to_snntorch import snntorch
from ratenorm.interop.to_spikingjelly import spikingjelly
from ratenorm.simulate.dense import DenseSimulation

SIMULATORS: dict[str, Callable[..., Reader]] = {
    "spikingjelly": spikingjelly,
    "sinabs": sinabs,
    "snntorch": snntorch,
}


@dataclass(frozen=True)
class Difference:
    """The first spike that is not the same: by step, then by layer, then by image and neuron."""

    step: int
    layer: str
    image: int
    neuron: tuple[int, ...]
    ours: float
    theirs: float

    def __str__(self) -> str:
        return (
            f"step {self.step}, layer {self.layer!r}, image {self.image}, neuron {self.neuron}: "
            f"{self.ours:g} here, {self.theirs:g} there"
        )


@dataclass(frozen=True)
class Comparison:
    """What a check found."""

    simulator: str
    images: int
    steps: int
    layers: int
    spikes: int  # ours
    compared: int  # neurons x steps x images
    different: int
    first: Difference | None
    outputs_equal: bool  # of every step, bit for bit
    answers_equal: int  # images whose class after the last step is the same

    @property
    def equal(self) -> bool:
        """Whether every spike is the same."""
        return self.different == 0

    def __str__(self) -> str:
        if self.equal:
            return (
                f"{self.simulator}: equal. {self.images} images, {self.steps} steps, {self.layers} layers: all "
                f"{self.compared:,} values compared, {self.spikes:,} spikes"
                f"{', all outputs equal bit for bit' if self.outputs_equal else ''}."
            )
        share = 100 * self.different / max(1, self.compared)
        return (
            f"{self.simulator}: {self.different:,} of {self.compared:,} values differ ({share:.3g} %); the same answer "
            f"for {self.answers_equal} of {self.images} images. The first is at {self.first}."
        )

    def to_json(self) -> dict[str, Any]:
        """For records."""
        return {
            "simulator": self.simulator,
            "images": self.images,
            "steps": self.steps,
            "layers": self.layers,
            "spikes": self.spikes,
            "compared": self.compared,
            "different": self.different,
            "first": None if self.first is None else str(self.first),
            "outputs_equal": self.outputs_equal,
            "answers_equal": self.answers_equal,
        }


def check(network: Network, simulator: str, x: Tensor, steps: int = 32, *, batch: int = 20) -> Comparison:
    """Run a network here and in another simulator on the same images, and compare every spike.

    Args:
        network: A spiking network, a conversion, or a NIR file of `export_nir`.
        simulator: "spikingjelly", "sinabs" or "snntorch".
        x: Images, as the network takes them.
        steps: Time-steps.
        batch: Images at a time.

    Returns:
        What was found: equal, or the first difference.
    """
    if simulator not in SIMULATORS:
        raise UsageError(
            f"Checking a network: {simulator!r} is no simulator known here; there are {', '.join(SIMULATORS)}."
        )
    return compare(SIMULATORS[simulator](network), x, steps, batch=batch)


@torch.no_grad()
def compare(reader: Reader, x: Tensor, steps: int = 32, *, batch: int = 20) -> Comparison:
    """The same for a network that is loaded already."""
    check_images("Checking a network", "the batch", x)
    check_count("Checking a network", "steps", steps)
    check_count("Checking a network", "batch", batch)
    spikes = compared = different = answers = 0
    first: Difference | None = None
    outputs_equal = True
    for begin in range(0, len(x), batch):
        images = x[begin : begin + batch]
        ours = DenseSimulation(reader.net, images)
        before = {name: torch.zeros_like(pop.counts) for name, pop in ours.populations.items()}
        summed: Tensor | None = None
        found: list[Difference] = []
        for step, (output, theirs) in enumerate(reader.run(images, steps), 1):
            ours.advance(1)
            assert ours.total is not None
            summed = output.double() if summed is None else summed + output.double()
            outputs_equal = outputs_equal and torch.equal(ours.total, summed.view_as(ours.total))
            for name, pop in ours.populations.items():
                now = pop.counts - before[name]
                before[name] = pop.counts.clone()
                unlike = now != theirs[name]
                spikes += int(now.count_nonzero())
                compared += now.numel()
                if unlike.any():
                    different += int(unlike.sum())
                    place = tuple(int(n) for n in unlike.nonzero()[0])
                    values = float(now[place]), float(theirs[name][place])
                    found.append(Difference(step, name, begin + place[0], place[1:], *values))
        assert summed is not None
        assert ours.total is not None
        answers += int((ours.total.flatten(1).argmax(1) == summed.flatten(1).argmax(1)).sum())
        if found and (first is None or found[0].step < first.step):
            first = found[0]
    layers = len(reader.net.populations)
    return Comparison(
        reader.simulator, len(x), steps, layers, spikes, compared, different, first, outputs_equal, answers
    )
