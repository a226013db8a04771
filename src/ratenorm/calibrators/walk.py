"""A walk over a spiking network, one population after the other, on all images and for all steps.

Eq. 3 has no delay between layers, so a population can run all its steps before the next one starts. Here every
population is first calibrated, with those before it spiking as they will in use, and then run. Spikes are kept as
bits: one bit for each neuron, image and step. A value that several layers read (a residual sum) is kept as well, so
that no layer is computed twice for its readers. What no later population reads is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ratenorm.convert.convert import Conversion
from ratenorm.core.neuron import integrate_and_fire_, signed_integrate_and_fire_
from ratenorm.errors import CalibrationError
from ratenorm.graph.net import Node, SpikingNet, run
from ratenorm.graph.ops import Activation, Fire, Input, MaxPool
from ratenorm.simulate.memory import available_memory

CHUNK = 50  # images computed together
UNIT = 2**24  # rates are summed as whole numbers of 1 / UNIT: the same sum in any order


@dataclass(frozen=True)
class _Kept:
    """A value of one chunk of images at one step, as it is kept."""

    data: Tensor | np.ndarray
    shape: tuple[int, ...] | None = None  # of spikes kept as bits

    @staticmethod
    def spikes(value: Tensor) -> _Kept:
        return _Kept(np.packbits(value.bool().numpy()), tuple(value.shape))

    def value(self) -> Tensor:
        if self.shape is None:
            assert isinstance(self.data, Tensor)
            return self.data
        assert isinstance(self.data, np.ndarray)
        bits = np.unpackbits(self.data, count=math.prod(self.shape))
        return torch.from_numpy(bits).float().view(self.shape)


class Population:
    """One population during a walk: its neurons, its input current, and the rates it should have."""

    def __init__(self, walk: Walk, node: Node, target: Tensor) -> None:
        assert isinstance(node.op, Fire)
        self.name = node.name
        self.fire: Fire = node.op
        self.steps = walk.steps
        self.target = target  # […] the mean rate of each neuron over the images, 1 = a spike at every step
        self._walk, self._node = walk, node

    @property
    def chunks(self) -> range:
        return range(len(self._walk.images))

    def current(self, chunk: int, step: int) -> Tensor:
        """[B, …] what flows into the neurons at a step, counted from 1."""
        return self._walk.value(self._node.inputs[0], chunk, step)

    def start(self, chunk: int) -> Tensor:
        """[B, …] the potentials before the first step."""
        shape = (len(self._walk.images[chunk]), *self.target.shape)
        return self.fire.start.expand(shape).clone()

    def by_channel(self, values: Tensor) -> Tensor:
        """The mean over space of […], as [C, 1, …] (a population without space has one neuron a channel)."""
        if values.ndim == 1:
            return values
        return values.flatten(1).mean(1).view(-1, *[1] * (values.ndim - 1))

    def emit(self, chunk: int, step: int, spikes: Tensor) -> None:
        """Keep the spikes of a step for the layers after."""
        self._walk.keep(self.name, chunk, step, spikes, binary=not self.fire.signed)

    def run(self, fire: Fire) -> Tensor:
        """Run all steps with these neurons and keep the spikes; returns each neuron's spikes over images and steps."""
        sums = torch.zeros(self.target.shape, dtype=torch.int64)
        self.fire = fire
        for chunk in self.chunks:
            potential, sent = self.start(chunk), torch.zeros(())
            for step in range(1, self.steps + 1):
                now = self.current(chunk, step)
                if (bias := fire.bias_at(step)) is not None:
                    now = now + bias
                if fire.signed:
                    spikes = signed_integrate_and_fire_(potential, now, fire.threshold, sent)
                    sent = sent + spikes
                else:
                    spikes = integrate_and_fire_(potential, now, fire.threshold)
                self.emit(chunk, step, spikes)
                sums += spikes.sum(0).long()
        return self._walk.total(sums)

    def total(self, sums: Tensor) -> Tensor:
        """A sum over the images of this process, as the sum over those of all processes."""
        return self._walk.total(sums)

    @property
    def images(self) -> int:
        """How many images there are, in all processes."""
        return self._walk.count


class Walk:
    """The walk over a conversion's network. Iterate over `populations`; run each one before asking for the next."""

    def __init__(self, conversion: Conversion, images: Tensor, steps: int, *, shared: bool = False) -> None:
        self.net: SpikingNet = conversion.net
        self.steps = steps
        self._shared = shared
        self._check(images)
        self.images: tuple[Tensor, ...] = images.split(CHUNK)
        self.count = int(self.total(torch.tensor(len(images))))
        self._kept: dict[tuple[str, int, int], _Kept] = {}
        self._targets = self._mean_rates(conversion)

    def total(self, sums: Tensor) -> Tensor:
        from ratenorm import distributed

        return distributed.total(sums) if self._shared else sums

    def _check(self, images: Tensor) -> None:
        """Refuse what cannot fit into memory, before anything is computed."""
        sizes = self.net.neurons.values()
        bits = sum(sizes) * len(images) * self.steps // 8
        sums = [math.prod(self.net.shapes[n.name]) for n in self.net.nodes if self._is_branch(n)]
        need = bits + 4 * len(images) * (self.steps * max(sums, default=0) + 3 * max(sizes))
        free = available_memory()
        if free is not None and need > free:
            fitting = max(1, int(len(images) * free / need))
            raise CalibrationError(
                f"Calibrating {len(images)} images for {self.steps} steps: this takes about {need / 2**20:,.0f} MB, "
                f"and {free / 2**20:,.0f} MB are free. Give {fitting} images or fewer, or fewer steps."
            )

    @torch.no_grad()
    def _mean_rates(self, conversion: Conversion) -> dict[str, Tensor]:
        """For each population the mean activation of the source network, in spikes a step."""
        sums: dict[str, Tensor] = {}

        def look(node: Node, value: Tensor) -> Tensor:
            if isinstance(node.op, Activation):
                rates = value.double() / conversion.scales[node.name].amplitude.double()
                own = (rates * UNIT).round().long().sum(0)
                sums[node.name] = sums[node.name] + own if node.name in sums else own
            return value

        for chunk in self.images:
            run(conversion.analog, chunk, look)
        return {name: self.total(own).double() / UNIT / self.count for name, own in sums.items()}

    def _is_branch(self, node: Node) -> bool:
        """A value without spikes that several nodes read: kept, so that it is computed once."""
        plain = not isinstance(node.op, Fire | Input) and node.name not in self.net.static
        return plain and (len(self.net.readers[node.name]) > 1 or isinstance(node.op, MaxPool))

    @torch.no_grad()
    def populations(self) -> Iterator[Population]:
        """Every population, in the order of the network."""
        last = self._last_readers()
        for node in self.net.nodes:
            if isinstance(node.op, MaxPool) and node.name not in self.net.static:
                self._relay(node, node.op)
            elif isinstance(node.op, Fire):
                yield Population(self, node, self._targets[node.name])
            else:
                continue
            for key in [k for k in self._kept if last.get(k[0]) == node.name]:
                del self._kept[key]

    def _last_readers(self) -> dict[str, str]:
        """For each kept value the last population or max-pool that needs it."""
        last: dict[str, str] = {}
        known: set[str] = set()  # branches that are kept already when a later reader comes

        def walk_back(name: str, reader: str) -> None:
            node = self.net[name]
            if node.name in self.net.static:
                last[name] = reader
                return
            if isinstance(node.op, Fire | MaxPool) or self._is_branch(node):
                last[name] = reader
                if isinstance(node.op, Fire | MaxPool) or name in known:
                    return
                known.add(name)
            for source in node.inputs:
                walk_back(source, reader)

        for node in self.net.nodes:
            if isinstance(node.op, Fire | MaxPool):
                walk_back(node.inputs[0], node.name)
        return last

    def keep(self, name: str, chunk: int, step: int, value: Tensor, *, binary: bool) -> None:
        self._kept[name, chunk, step] = _Kept.spikes(value) if binary else _Kept(value)

    def value(self, name: str, chunk: int, step: int) -> Tensor:
        """The value of a node for a chunk of images at a step; of a static node, at any step."""
        node = self.net[name]
        static = name in self.net.static
        key = (name, chunk, 0 if static else step)
        if (kept := self._kept.get(key)) is not None:
            return kept.value()
        if isinstance(node.op, Input):
            return self.images[chunk]
        value = node.op(*(self.value(source, chunk, step) for source in node.inputs))
        if static or self._is_branch(node):
            self._kept[key] = _Kept(value)
        return value

    def _relay(self, node: Node, pool: MaxPool) -> None:
        """A max-pool passes on what raises the largest count of a window, as in the engines."""
        for chunk in range(len(self.images)):
            counts: Tensor | None = None
            largest: Tensor | float = 0.0
            for step in range(1, self.steps + 1):
                now = self.value(node.inputs[0], chunk, step)
                counts = now.clone() if counts is None else counts + now
                before, largest = largest, pool(counts)
                self.keep(node.name, chunk, step, largest - before, binary=False)


def with_fires(net: SpikingNet, fires: dict[str, Fire]) -> SpikingNet:
    """The network with some of its populations replaced."""
    return replace(net, nodes=tuple(replace(n, op=fires[n.name]) if n.name in fires else n for n in net.nodes))
