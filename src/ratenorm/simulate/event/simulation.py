"""The event engine at work: `EventSimulation` has the face of `DenseSimulation` and gives the same results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ratenorm.contexts import undisturbed_call
from ratenorm.core.coding import Coding, Constant
from ratenorm.graph.net import Node, SpikingNet, check_input
from ratenorm.graph.ops import MaxPool
from ratenorm.simulate.event import _core
from ratenorm.simulate.event.group import Group, Settings
from ratenorm.simulate.event.plan import plan
from ratenorm.simulate.event.tables import Array
from ratenorm.simulate.event.threads import torch_threads
from ratenorm.simulate.result import Fit, LayerActivity, SimResult

In = TypeVar("In")
Out = TypeVar("Out")

CHUNK = 32  # steps a layer is run before the next one; at most _core.MOST_STEPS
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
        chosen: Coding = Constant() if coding is None else coding
        made = plan(net, isinstance(chosen, Constant))
        settings = Settings(net, made, chosen, fit, first_spikes, choose)
        starts = range(0, len(x), size)
        self.groups = self._each(lambda start: Group(settings, x[start : start + size], first_image + start), starts)

    def _images_together(self) -> int:
        state = sum(self.net.neurons.values()) * (8 + CHUNK // 8)
        fitting = max(1, min(64, WORKING_SET // max(1, state)))
        return max(1, min(fitting, -(-self.batch // self.threads)))

    @undisturbed_call
    def advance(self, steps: int) -> Tensor:
        """Run `steps` further steps; returns their logits [steps, B, classes]."""
        share = max(1, self.threads // len(self.groups))
        return torch.cat(self._each(lambda group: group.advance(steps, CHUNK, share), self.groups), 1)

    def _each(self, function: Callable[[In], Out], items: Sequence[In]) -> list[Out]:
        """Call a function with each item, in threads of their own where there are several."""

        @torch.no_grad()  # gradients are switched on in every new thread
        def called(item: In) -> Out:
            with torch_threads(1):
                return function(item)

        if self.threads == 1 or len(items) == 1:
            return [called(item) for item in items]
        # torch's number of threads is each thread's own, but new ones begin with what was set last, anywhere
        with torch_threads(self.threads), ThreadPoolExecutor(min(self.threads, len(items))) as pool:
            return list(pool.map(called, items))

    @undisturbed_call
    def keep(self, images: Sequence[int]) -> None:
        """Continue with some of the images only, in their order. What `advance` returns is of them from then on; a
        result, which is of all images and steps, cannot be had any more once there were steps before."""
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
            if not stage.relays:
                shares[stage.name] = sum(group.dense_rows[k] for group in self.groups) / rows if rows else 0.0
        return shares

    @undisturbed_call
    def result(self) -> SimResult:
        """What happened so far."""
        numbers = self.groups[0].settings.plan.numbers
        by_group = [np.concatenate(group.tallies, 2) for group in self.groups]
        tallies = sum(by_group[1:], by_group[0]).astype(np.float64)  # whole numbers
        layers = tuple(self._activity(node, numbers[node.name], tallies) for node in self.net.populations)
        relays = tuple(
            (node.name, self._relay(node, numbers, tallies)) for node in self.net.nodes if isinstance(node.op, MaxPool)
        )
        logits = torch.cat([torch.cat(group.logits) for group in self.groups], 1)
        return SimResult(logits, layers, relays, "auto" if self.choose else "event", self.choices)

    def _relay(self, node: Node, numbers: dict[str, int], tallies: Array) -> Tensor:
        if node.name in numbers:
            return torch.from_numpy(tallies[numbers[node.name], 1].copy())
        return torch.stack([group.relays[node.name].synaptic_ops() for group in self.groups]).sum(0)

    def _activity(self, node: Node, k: int, tallies: Array) -> LayerActivity:
        layout = self.groups[0].settings.plan.stages[k].layout
        spikes, operations = torch.from_numpy(tallies[k].copy()).unbind()
        early = [group.first_spikes[k] for group in self.groups if group.first_spikes]
        return LayerActivity(
            name=node.name,
            neurons=self.net.neurons[node.name],
            spikes=spikes,
            synaptic_ops=operations,
            fit=_joined([group.fits[k].fit() for group in self.groups if group.fits]),
            first_spike=torch.cat(early) if early else None,
            neuron_by_neuron=partial(_in_order, [group.state.snapshot() for group in self.groups], k, layout.shape),
        )


def _in_order(states: Sequence[_core.State], stage: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Counts and potentials of all images, [B, …]."""
    counts = [torch.from_numpy(state.counts(stage)) for state in states]
    potential = [torch.from_numpy(state.potential(stage)) for state in states]
    return torch.cat(counts).view(-1, *shape), torch.cat(potential).view(-1, *shape)


def _joined(parts: list[Fit]) -> Fit | None:
    if not parts:
        return None
    return Fit(torch.stack([p.error for p in parts]).sum(0), sum(p.total for p in parts), sum(p.power for p in parts))
