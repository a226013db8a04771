"""The event engine at work: `EventSimulation` has the face of `DenseSimulation` and gives the same results."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from queue import SimpleQueue

import torch
from torch import Tensor

from ratenorm.core.coding import Coding, Constant
from ratenorm.engines.event.group import Group, Settings
from ratenorm.engines.event.plan import plan
from ratenorm.engines.event.room import Room
from ratenorm.engines.result import Fit, LayerActivity, SimResult
from ratenorm.graph.net import SpikingNet, check_input

CHUNK = 32  # steps a layer is run before the next one; below 256, see fire.Scratch
WORKING_SET = 12 << 20  # bytes of state and spikes of the images that are run together


class EventSimulation:
    """A running simulation: call `advance` for more steps, `result` for what happened so far.

    Images are independent: each thread takes a group of them through all layers. Where there are fewer groups than
    threads, several threads share the channels of a layer.
    """

    @torch.no_grad()
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
        parts = max(1, self.threads // max(1, len(starts)))
        chosen: Coding = Constant() if coding is None else coding
        made = plan(net, isinstance(chosen, Constant))
        settings = Settings(net, made, chosen, fit, first_spikes, choose, parts)
        self.rooms: SimpleQueue[Room] = SimpleQueue()  # one for each thread
        for _ in range(self.threads):
            self.rooms.put(Room())
        self.groups = [Group(settings, x[start : start + size], first_image + start) for start in starts]

    def _images_together(self) -> int:
        state = sum(self.net.neurons.values()) * (8 + CHUNK // 8)
        fitting = max(1, min(64, WORKING_SET // max(1, state)))
        return max(1, min(fitting, -(-self.batch // self.threads)))

    @torch.no_grad()
    def advance(self, steps: int) -> Tensor:
        """Run `steps` further steps; returns their logits [steps, B, classes]."""
        if self.threads == 1:
            return torch.cat([self._advance(group, steps) for group in self.groups], 1)
        if len(self.groups) == 1:
            with ThreadPoolExecutor(self.threads - 1) as pool:
                return self._advance(self.groups[0], steps, pool)
        try:
            # torch's number of threads is each thread's own, but new ones begin with what was set last, anywhere
            with ThreadPoolExecutor(self.threads, initializer=lambda: torch.set_num_threads(1)) as pool:
                return torch.cat(list(pool.map(lambda group: self._advance(group, steps), self.groups)), 1)
        finally:
            torch.set_num_threads(self.threads)

    @torch.no_grad()  # gradients are switched on in every new thread
    def _advance(self, group: Group, steps: int, helpers: Executor | None = None) -> Tensor:
        room = self.rooms.get()
        try:
            return group.advance(steps, CHUNK, room, helpers)
        finally:
            self.rooms.put(room)

    def keep(self, images: Sequence[int]) -> None:
        """Go on with some of the images only, in their order; what the others did stays counted."""
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
        for k, stage in enumerate(self.groups[0].settings.plan.stages):
            works = [group.works[k] for group in self.groups]
            rows = sum(work.rows for work in works)
            shares[stage.name] = sum(work.dense_rows for work in works) / rows if rows else 0.0
        return shares

    def result(self) -> SimResult:
        """What happened so far."""
        groups = self.groups
        layers = []
        for k, node in enumerate(self.net.populations):
            parts = [group.populations[k] for group in groups]
            first = [p.first_spikes() for p in parts]
            layers.append(
                LayerActivity(
                    name=node.name,
                    neurons=self.net.neurons[node.name],
                    counts=torch.cat([p.counts() for p in parts]),
                    spikes=torch.stack([p.spikes() for p in parts]).sum(0),
                    synaptic_ops=torch.stack([p.synaptic_ops() for p in parts]).sum(0),
                    potential=torch.cat([p.potential() for p in parts]),
                    fit=_joined([p.fit() for p in parts]),
                    first_spike=None if first[0] is None else torch.cat([f for f in first if f is not None]),
                )
            )
        relays = tuple(
            (name, torch.stack([group.relays[name].synaptic_ops() for group in groups]).sum(0))
            for name in groups[0].relays
        )
        logits = torch.cat([torch.cat(group.logits) for group in groups], 1)
        return SimResult(logits, tuple(layers), relays, "auto" if self.choose else "event")


def _joined(parts: list[Fit | None]) -> Fit | None:
    known = [p for p in parts if p is not None]
    if not known:
        return None
    return Fit(torch.stack([p.error for p in known]).sum(0), sum(p.total for p in known), sum(p.power for p in known))
