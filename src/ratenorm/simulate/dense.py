"""The dense engine: torch, any device, every operation of the graph as it is written. The reference for all others.

Eq. 3 has no delay between layers: at step t a layer sees the spikes of step t of the layer before. A layer may
therefore be run over a chunk of steps before the next one starts; chunk = 1 is step by step, chunk = T layer by
layer, and
the results are the same. A chunk is stacked into the batch dimension, [S * B, …], so memory depends on the chunk and
not on T. What no spike can reach (the first layer under constant coding) is computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ratenorm.contexts import undisturbed_call
from ratenorm.core.coding import Coding, Constant
from ratenorm.core.neuron import integrate_and_fire_, signed_integrate_and_fire_
from ratenorm.graph.net import Node, SpikingNet, check_input, run
from ratenorm.graph.ops import Fire, Input, MaxPool
from ratenorm.simulate.compiled_step import compiled_step, wanted
from ratenorm.simulate.result import Fit, LayerActivity, SimResult


class _Series:
    """A number a step. Tensors of one number each would take a hundred times the memory of the numbers."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []

    def extend(self, numbers: Sequence[Tensor]) -> None:
        self._parts += numbers
        if len(self._parts) >= 64:
            self._parts = [self.all()]

    def all(self) -> Tensor:
        """[T]"""
        return torch.cat([part.reshape(-1) for part in self._parts])


@dataclass
class _Population:
    """The running state of one population."""

    node: Node
    potential: Tensor  # [B, …]
    counts: Tensor  # [B, …]
    fan_out: Tensor  # […]
    target: Tensor | None  # [B, …] analog rates, where K is asked for
    first_spike: Tensor | None
    spikes: _Series = field(default_factory=_Series)
    synaptic_ops: _Series = field(default_factory=_Series)
    error: _Series = field(default_factory=_Series)


@dataclass
class _Relay:
    """The running state of a max-pool: what has accumulated, and its maximum a step ago."""

    node: Node
    fan_out: Tensor
    accumulated: Tensor  # [B, …] of its input
    largest: Tensor  # [B, …] of its output
    synaptic_ops: _Series = field(default_factory=_Series)


class _Tally(NamedTuple):
    """What one population or relay did in a chunk, an entry a step."""

    spikes: list[Tensor]
    synaptic_ops: list[Tensor]
    error: list[Tensor]


class DenseSimulation:
    """A running simulation: call `advance` for more steps, `result` for what happened so far.

    `compiled` runs the step through `torch.compile`; None decides by the device, see `compiled_step`.
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
        compiled: bool | None = None,
    ) -> None:
        check_input(net, x)
        self.net = net
        plain = type(self)._chunk
        self._step = compiled_step(plain) if wanted(net.device, compiled) else plain
        self.x = x.to(net.device)
        self.coding: Coding = Constant() if coding is None else coding
        self.images = list(range(first_image, first_image + len(x)))  # their numbers, for random codings
        self.step = 0
        self.total: Tensor | None = None  # [B, classes] summed output, float64
        self.logits: list[Tensor] = []
        paths = net.fan_out
        targets = analog_rates(net, self.x) if fit else {}
        batch = len(x)
        self.populations: dict[str, _Population] = {}
        for node in net.populations:
            assert isinstance(node.op, Fire)
            shape = (batch, *net.shapes[node.name])
            start = node.op.start.to(self.x.dtype).expand(shape).clone()
            self.populations[node.name] = _Population(
                node,
                start,
                torch.zeros_like(start),
                paths[node.name].to(net.device),
                targets.get(node.name),
                torch.zeros_like(start, dtype=torch.int32) if first_spikes else None,
            )
        self.relays: dict[str, _Relay] = {}
        for node in net.nodes:
            if isinstance(node.op, MaxPool):
                before, after = (self.x.new_zeros(batch, *net.shapes[n]) for n in (node.inputs[0], node.name))
                # A maximum of nothing yet: padding counts as minus infinity in torch, so silence is 0 everywhere.
                self.relays[node.name] = _Relay(node, paths[node.name].to(net.device), before, after)
        self.static = net.static if isinstance(self.coding, Constant) else frozenset()
        self.still = self._static_values()

    def _static_values(self) -> dict[str, Tensor]:
        """The values that never change, kept where a changing node or the output reads them."""
        values: dict[str, Tensor] = {}
        for node in self.net.nodes:
            if node.name in self.static:
                inputs = [values[i] for i in node.inputs]
                values[node.name] = self.x if isinstance(node.op, Input) else self.net.value(node, *inputs)
        return {
            name: value
            for name, value in values.items()
            if name == self.net.output or any(r.name not in self.static for r in self.net.readers[name])
        }

    @undisturbed_call
    def advance(self, steps: int) -> Tensor:
        """Run `steps` further steps as one chunk; returns their logits [steps, B, classes]."""
        elapsed = torch.arange(self.step + 1, self.step + steps + 1, device=self.x.device, dtype=self.x.dtype)
        now = range(self.step, self.step + steps)
        changing = self.net.nodes[0].name not in self.static
        encoded = torch.cat([encode(self.coding, self.x, s, self.images) for s in now]) if changing else None
        out, tallies = self._step(self, encoded, elapsed, steps)
        for name, tally in tallies.items():
            self._note(name, tally)
        logits, self.total = mean_outputs(out, self.total, self.step)
        self.logits.append(logits.clone())  # what is returned is the caller's to change
        self.step += steps
        return logits

    def _chunk(self, encoded: Tensor | None, elapsed: Tensor, steps: int) -> tuple[Tensor, dict[str, _Tally]]:
        """Every node over a chunk of steps: the output [S, B, classes], and what each population did.

        Changes nothing but the potentials, counts and first spikes of the populations and the state of the relays.
        """
        net = self.net
        values: dict[str, Tensor] = {}
        tallies: dict[str, _Tally] = {}
        for node in net.nodes:
            if node.name in self.static:
                continue
            if isinstance(node.op, Fire):
                current = self._current(node.inputs[0], values)
                value, tallies[node.name] = self._fire(self.populations[node.name], current, elapsed)
            elif isinstance(node.op, MaxPool):
                arriving = self._value(node.inputs[0], values, steps)
                value, tallies[node.name] = self._relay(self.relays[node.name], node.op, arriving, steps)
            elif isinstance(node.op, Input):
                assert encoded is not None
                value = encoded
            else:
                value = net.value(node, *(self._value(i, values, steps) for i in node.inputs))
            values[node.name] = value
            for name in node.inputs:
                if net.last_use[name] == node.name and name != net.output:
                    values.pop(name, None)
        return self._value(net.output, values, steps).reshape(steps, len(self.x), -1), tallies

    def _note(self, name: str, tally: _Tally) -> None:
        if name in self.relays:
            self.relays[name].synaptic_ops.extend(tally.synaptic_ops)
            return
        population = self.populations[name]
        population.spikes.extend(tally.spikes)
        population.synaptic_ops.extend(tally.synaptic_ops)
        population.error.extend(tally.error)

    def _value(self, name: str, values: dict[str, Tensor], steps: int) -> Tensor:
        """A node's value for a whole chunk, [S * B, …]; a static value is repeated."""
        if name in self.still:
            still = self.still[name]
            return still.expand(steps, *still.shape).flatten(0, 1)
        return values[name]

    def _current(self, name: str, values: dict[str, Tensor]) -> Tensor:
        """A population's current: [B, …] where it never changes, else [S * B, …]."""
        return self.still[name] if name in self.still else values[name]

    def _fire(self, pop: _Population, current: Tensor, elapsed: Tensor) -> tuple[Tensor, _Tally]:
        fire = pop.node.op
        assert isinstance(fire, Fire)
        batch, steps = len(self.x), len(elapsed)
        constant = current.shape[0] == batch and pop.node.inputs[0] in self.still
        out: list[Tensor] = []
        tally = _Tally([], [], [])
        if fire.step_bias is not None:  # a row for each step of the chunk; later steps take the last row
            rows = fire.step_bias[(elapsed.long() - 1).clamp(max=len(fire.step_bias) - 1)]
        for s in range(steps):
            now = current if constant else current[s * batch : (s + 1) * batch]
            if fire.step_bias is not None:
                now = now + rows[s]
            if fire.signed:
                spikes = signed_integrate_and_fire_(pop.potential, now, fire.threshold, pop.counts)
            else:
                spikes = integrate_and_fire_(pop.potential, now, fire.threshold)
            pop.counts += spikes
            # […]; whole numbers below 2^24, exact in float32. A negative spike costs what a positive one does.
            flat = (spikes.abs() if fire.signed else spikes).sum(0)
            tally.spikes.append(flat.sum(dtype=torch.float64))
            tally.synaptic_ops.append((flat.double() * pop.fan_out).sum())
            if pop.target is not None:
                gap = pop.counts / elapsed[s] - pop.target
                tally.error.append(gap.square().sum(dtype=torch.float64))
            if pop.first_spike is not None:
                new = (pop.first_spike == 0) & (spikes > 0)
                pop.first_spike += new * elapsed[s].to(pop.first_spike.dtype)
            out.append(spikes)
        return out[0] if steps == 1 else torch.cat(out), tally

    def _relay(self, relay: _Relay, pool: MaxPool, value: Tensor, steps: int) -> tuple[Tensor, _Tally]:
        batch, out = len(self.x), []
        tally = _Tally([], [], [])
        for s in range(steps):
            relay.accumulated += value[s * batch : (s + 1) * batch]
            largest = pool(relay.accumulated)
            passed = largest - relay.largest
            relay.largest.copy_(largest)
            tally.synaptic_ops.append(((passed != 0).sum(0).double() * relay.fan_out).sum())
            out.append(passed)
        return out[0] if steps == 1 else torch.cat(out), tally

    @undisturbed_call
    def keep(self, images: Sequence[int]) -> None:
        """Go on with some of the images only, in their order. What `advance` returns is of them from then on; a result,
        which is of all images and steps, cannot be had any more once there were steps before."""
        chosen = torch.as_tensor(images, device=self.x.device)
        self.x, self.images = self.x[chosen], [self.images[i] for i in images]
        self.total = None if self.total is None else self.total[chosen]
        for pop in self.populations.values():
            pop.potential, pop.counts = pop.potential[chosen], pop.counts[chosen]
            pop.target = None if pop.target is None else pop.target[chosen]
            pop.first_spike = None if pop.first_spike is None else pop.first_spike[chosen]
        for relay in self.relays.values():
            relay.accumulated, relay.largest = relay.accumulated[chosen], relay.largest[chosen]
        self.still = self._static_values()

    @undisturbed_call
    def result(self) -> SimResult:
        """What happened so far."""
        layers = tuple(
            LayerActivity(
                name=name,
                neurons=self.net.neurons[name],
                spikes=pop.spikes.all(),
                synaptic_ops=pop.synaptic_ops.all(),
                fit=_fit(pop),
                first_spike=pop.first_spike,
                neuron_by_neuron=partial(_together, pop.counts.clone(), pop.potential.clone()),
            )
            for name, pop in self.populations.items()
        )
        relays = tuple((name, relay.synaptic_ops.all()) for name, relay in self.relays.items())
        return SimResult(torch.cat(self.logits), layers, relays, "dense")


def mean_outputs(out: Tensor, total: Tensor | None, step: int) -> tuple[Tensor, Tensor]:
    """The mean outputs after each step of a chunk, and the new total. `step` is the number of steps before it.

    The total is kept in float64 and grows step by step, so that the size of a chunk cannot change it.
    """
    before = out.new_zeros(1, *out.shape[1:], dtype=torch.float64) if total is None else total.unsqueeze(0)
    running = torch.cat([before, out.double()]).cumsum(0)[1:]
    elapsed = torch.arange(step + 1, step + len(out) + 1, device=out.device, dtype=torch.float64)
    return (running / elapsed.view(-1, *[1] * (out.ndim - 1))).to(out.dtype), running[-1]


def _together(counts: Tensor, potential: Tensor) -> tuple[Tensor, Tensor]:
    return counts, potential


def _fit(pop: _Population) -> Fit | None:
    if pop.target is None:
        return None
    rates = pop.target.double()
    return Fit(pop.error.all(), float(rates.sum()), float(rates.square().sum()))


def encode(coding: Coding, x: Tensor, step: int, images: Sequence[int]) -> Tensor:
    """The input at a step; `images` are the numbers of the images, in ascending order."""
    if images[-1] - images[0] == len(images) - 1:
        return coding.encode(x, step, images[0])
    return torch.cat([coding.encode(one, step, n) for one, n in zip(x.split(1), images, strict=True)])


def chunks(steps: int, size: int) -> Iterator[int]:
    """`steps` cut into pieces of at most `size`."""
    for start in range(0, steps, size):
        yield min(size, steps - start)


@torch.no_grad()
def analog_rates(net: SpikingNet, x: Tensor) -> dict[str, Tensor]:
    """r^ of every population: the rates to which the spiking network converges, from the clipped ANN."""
    found: dict[str, Tensor] = {}

    def note(node: Node, value: Tensor) -> Tensor:
        if isinstance(node.op, Fire):
            found[node.name] = value
        return value

    run(net, x.to(net.device), note)
    return found
