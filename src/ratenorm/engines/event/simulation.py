"""The event engine at work: `EventSimulation` has the face of `DenseSimulation` and gives the same results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ratenorm.contexts import undisturbed_call
from ratenorm.core.coding import Coding, Constant
from ratenorm.engines.event.crew import Crew, hired
from ratenorm.engines.event.group import Group, Settings
from ratenorm.engines.event.plan import plan
from ratenorm.engines.event.script import Room
from ratenorm.engines.event.state import States
from ratenorm.engines.event.threads import torch_threads
from ratenorm.graph.net import SpikingNet, check_input
from ratenorm.simulate.result import Fit, LayerActivity, SimResult

In = TypeVar("In")
Out = TypeVar("Out")

CHUNK = 32  # steps a layer is run before the next one; below 256, see scatter.Scratch
WORKING_SET = 64 << 20  # bytes of state and spikes of the images that are run together


class EventSimulation:
    """A running simulation: call `advance` for more steps, `result` for what happened so far.

    Images are independent: each thread takes a group of them through all layers. Where there are fewer groups than
    threads, several threads share the channels of a layer.
    """

    @undisturbed_call
    def __init__(
        self,
        net: SpikingNet,
        x: Tensor,
        coding: Coding | None = None,
        *,
        fit: bool = False,
        first_spikes: bool = False,
        first_image: int = 0,
        choose: bool = True,
    ) -> None:
        check_input(net, x)
        self.net, self.batch, self.choose = net, len(x), choose
        self.threads = torch.get_num_threads()
        size = self._images_together()
        starts = range(0, len(x), size)
        chosen: Coding = Constant() if coding is None else coding
        made = plan(net, isinstance(chosen, Constant))
        settings = Settings(net, made, chosen, fit, first_spikes, choose)
        self.rooms = made.rooms

        def made_group(start: int, _: Crew) -> Group:
            return Group(settings, x[start : start + size], first_image + start)

        self.groups = self._each(made_group, starts, helpers=0)

    def _images_together(self) -> int:
        state = sum(self.net.neurons.values()) * (8 + CHUNK // 8)
        fitting = max(1, min(64, WORKING_SET // max(1, state)))
        return max(1, min(fitting, -(-self.batch // self.threads)))

    @undisturbed_call
    def advance(self, steps: int) -> Tensor:
        """Run `steps` further steps; returns their logits [steps, B, classes]."""

        def moved_on(group: Group, crew: Crew) -> Tensor:
            try:
                room = self.rooms.get_nowait()
            except Empty:
                room = Room()
            logits = group.advance(steps, CHUNK, room, crew)
            self.rooms.put(room)  # not where something went wrong: nobody knows what is on its boards
            return logits

        return torch.cat(self._each(moved_on, self.groups, helpers=self.threads - 1), 1)

    def _each(self, function: Callable[[In, Crew], Out], items: Sequence[In], helpers: int) -> list[Out]:
        """Call a function with each item, in threads of their own where there are several, which share the helpers."""

        @torch.no_grad()  # gradients are switched on in every new thread
        def called(item: In) -> Out:
            with torch_threads(1), hired(max(0, (1 + helpers) // len(items) - 1)) as crew:
                return function(item, crew)

        if self.threads == 1 or len(items) == 1:
            return [called(item) for item in items]
        # torch's number of threads is each thread's own, but new ones begin with what was set last, anywhere
        with torch_threads(self.threads), ThreadPoolExecutor(min(self.threads, len(items))) as pool:
            return list(pool.map(called, items))

    @undisturbed_call
    def keep(self, images: Sequence[int]) -> None:
        """Go on with some of the images only, in their order. What `advance` returns is of them from then on; a result,
        which is of all images and steps, cannot be had any more once there were steps before."""
        groups, start = [], 0
        for group in self.groups:
            own = [i - start for i in images if start <= i < start + len(group.x)]
            start += len(group.x)
            if own:
                group.keep(own)
                groups.append(group)
        self.groups, self.batch = groups, len(images)

    @property
    def choices(self) -> dict[str, float]:
        """For each population and the output the share of its work that was done by convolution instead of events."""
        shares: dict[str, float] = {}
        rows = sum(group.rows for group in self.groups)
        for k, stage in enumerate(self.groups[0].settings.plan.stages):
            shares[stage.name] = sum(group.dense_rows[k] for group in self.groups) / rows if rows else 0.0
        return shares

    @undisturbed_call
    def result(self) -> SimResult:
        """What happened so far."""
        noted = self._noted()
        layers = tuple(self._activity(k, *noted[k]) for k in range(len(self.net.populations)))
        relays = tuple(
            (name, torch.stack([group.relays[name].synaptic_ops() for group in self.groups]).sum(0))
            for name in self.groups[0].relays
        )
        logits = torch.cat([torch.cat(group.logits) for group in self.groups], 1)
        return SimResult(logits, layers, relays, "auto" if self.choose else "event", self.choices)

    def _noted(self) -> list[tuple[Tensor, Tensor]]:
        """Spikes and synaptic operations of each population, step by step: whole numbers, as the float64 of results."""
        if not self.net.populations:
            return []
        by_group = [np.concatenate(group.noted, 2) for group in self.groups]
        spikes, operations = torch.from_numpy(sum(by_group[1:], by_group[0]).astype(np.float64)).unbind(1)
        return list(zip(spikes.unbind(), operations.unbind(), strict=True))

    def _activity(self, k: int, spikes: Tensor, synaptic_ops: Tensor) -> LayerActivity:
        node = self.net.populations[k]
        parts = [group.populations[k] for group in self.groups]
        first = [p.first_spikes() for p in parts]
        return LayerActivity(
            name=node.name,
            neurons=self.net.neurons[node.name],
            spikes=spikes,
            synaptic_ops=synaptic_ops,
            fit=_joined([p.fit() for p in parts]),
            first_spike=None if first[0] is None else torch.cat([f for f in first if f is not None]),
            neuron_by_neuron=partial(_in_order, [part.states() for part in parts]),
        )


def _in_order(parts: Sequence[States]) -> tuple[Tensor, Tensor]:
    """Counts and potentials of all images, [B, …]."""
    shape = (sum(part.images for part in parts), *parts[0].layout.shape)
    counts, potential = torch.empty(shape, dtype=torch.float32), torch.empty(shape, dtype=torch.float32)
    start = 0
    for part in parts:
        own = slice(start, start + part.images)
        part.layout.from_blocks(part.counts, counts[own])
        part.layout.from_blocks(part.potential, potential[own])
        start += part.images
    return counts, potential


def _joined(parts: list[Fit | None]) -> Fit | None:
    known = [p for p in parts if p is not None]
    if not known:
        return None
    return Fit(torch.stack([p.error for p in known]).sum(0), sum(p.total for p in known), sum(p.power for p in known))
