"""The metrics of NeuroBench (2.3), computed as its package computes them, on some images step by step.

    Footprint           bytes of all tensors of the network
    ConnectionSparsity  share of zeros among the weights of convolutions and linear layers
    ActivationSparsity  1 - spikes / (neurons x steps x images)
    SynapticOperations  per image: nonzero weights met by nonzero inputs, counted as ACs where all inputs of a layer
                        at a step are -1, 0 or 1, and as MACs where they are not; Dense: the same with nothing zero
    MembraneUpdates     per image: potentials that differ from those a step before; at the first step all of them

Pools are part of the layer after them, as in a folded network: a mean of spikes would count as MACs. The analog first
layer counts at every step, as NeuroBench counts it; "Effective_MACs_once" counts it once, as an engine pays for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ratenorm.arguments import check_count, check_images
from ratenorm.contexts import undisturbed_call
from ratenorm.core.coding import Coding, Constant
from ratenorm.core.neuron import integrate_and_fire_, signed_integrate_and_fire_
from ratenorm.graph.net import Converted, Node, SpikingNet, check_input, spiking_net
from ratenorm.graph.ops import (
    AdaptiveAvgPool,
    Affine,
    AvgPool,
    Conv,
    Fire,
    Input,
    Linear,
    MaxPool,
    Op,
    Permute,
    Reshape,
    Slice,
    Upsample,
)

IMAGES, IMAGES_TIMES_STEPS = 20, 640  # of an evaluation: the most that are measured
_PASSED = (AvgPool, AdaptiveAvgPool, Reshape, Permute, Slice, Upsample)  # part of the layer after them


def images_measured(images: int, steps: int) -> int:
    """How many images of an evaluation are measured: at most 20, fewer where there are many steps."""
    return min(images, IMAGES, max(1, IMAGES_TIMES_STEPS // steps))


@undisturbed_call
def neurobench_metrics(
    net: SpikingNet | Converted, x: Tensor, steps: int, *, coding: Coding | None = None, first_image: int = 0
) -> dict[str, Any]:
    """The metrics of NeuroBench for a spiking network on a batch of images.

    Args:
        net: The spiking network, or the conversion that made it.
        x: Images, as the network takes them.
        steps: Time-steps.
        coding: How the images enter; None: as constant currents.
        first_image: The number of the first image, for Poisson coding.

    Returns:
        The metrics by their names in NeuroBench, with the number of images and steps.

    Example:
        >>> import torch, ratenorm as rn
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> conversion = rn.convert(model, "fixed:1.0", example=torch.rand(1, 4))
        >>> rn.neurobench_metrics(conversion, torch.rand(3, 4), 5)["SynapticOperations"]["Dense"]
        240.0
    """
    net = spiking_net(net)
    check_images("Measuring", "the batch", x)
    check_count("Measuring", "steps", steps)
    check_input(net, x)
    run = _Run(net, x.to(net.device, next(iter(net.dtypes), x.dtype)), coding or Constant(), first_image)
    for step in range(steps):
        run.advance(step)
    images = len(x)
    neurons = sum(net.neurons.values())
    weights = [node.op.weight for node in net.nodes if isinstance(node.op, Conv | Linear)]
    total = sum(w.numel() for w in weights)
    return {  # in the order in which files keep them, so that a resumed evaluation prints the same
        "ActivationSparsity": 1.0 - run.spikes / (neurons * steps * images) if neurons else 0.0,
        "ConnectionSparsity": sum(int((w == 0).sum()) for w in weights) / total if total else 0.0,
        "Effective_MACs_once": (run.macs - run.repeated) / images,
        "Footprint": sum(t.numel() * t.element_size() for node in net.nodes for t in node.op.tensors().values()),
        "MembraneUpdates": run.updates / images,
        "SynapticOperations": {
            "Dense": run.dense / images,
            "Effective_ACs": run.acs / images,
            "Effective_MACs": run.macs / images,
        },
        "images": images,
        "steps": steps,
    }


@dataclass(frozen=True)
class _Layer:
    """A layer with weights: the node whose values are its inputs, and how many weights each of them meets."""

    source: str
    nonzero: Tensor
    every: float


@dataclass
class _Run:
    """A run, step by step, in the plainest form."""

    net: SpikingNet
    x: Tensor
    coding: Coding
    first_image: int
    spikes: float = 0.0
    macs: float = 0.0
    acs: float = 0.0
    dense: float = 0.0
    repeated: float = 0.0  # MACs of layers whose input is the same as a step before
    updates: float = 0.0
    potential: dict[str, Tensor] = field(default_factory=dict)
    sent: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layers = list(_layers(self.net))
        self.still = self.net.static if isinstance(self.coding, Constant) else frozenset()
        self.kept: dict[str, Tensor] = {}

    @torch.no_grad()
    def advance(self, step: int) -> None:
        """One step."""
        values: dict[str, Tensor] = dict(self.kept)
        for node in self.net.nodes:
            if node.name not in values:
                values[node.name] = self._value(node, [values[i] for i in node.inputs], step)
        self.kept = {name: values[name] for name in self.still}
        for layer in self.layers:
            inputs = values[layer.source]
            operations = float(((inputs != 0).double() * layer.nonzero).sum())
            self.dense += layer.every * len(inputs)
            if bool(((inputs == 0) | (inputs.abs() == 1)).all()):
                self.acs += operations
            else:
                self.macs += operations
                self.repeated += operations if step and layer.source in self.still else 0.0

    def _value(self, node: Node, inputs: list[Tensor], step: int) -> Tensor:
        if isinstance(node.op, Input):
            return self.coding.encode(self.x, step, self.first_image)
        if isinstance(node.op, Fire):
            return self._fire(node.name, node.op, inputs[0], step)
        if isinstance(node.op, MaxPool):
            return self._relay(node.name, node.op, inputs[0])
        return self.net.value(node, *inputs)

    def _fire(self, name: str, op: Fire, current: Tensor, step: int) -> Tensor:
        start = op.start.to(current.dtype).expand(current.shape)
        potential = self.potential.setdefault(name, start.clone())
        before = potential.clone()
        bias = op.bias_at(step + 1)
        current = current if bias is None else current + bias
        if op.signed:
            sent = self.sent.setdefault(name, torch.zeros_like(potential))
            spikes = signed_integrate_and_fire_(potential, current, op.threshold, sent)
            sent += spikes
        else:
            spikes = integrate_and_fire_(potential, current, op.threshold)
        self.spikes += float(spikes.count_nonzero())
        self.updates += float((potential != before).sum()) if step else float(potential.numel())
        return spikes

    def _relay(self, name: str, op: MaxPool, arriving: Tensor) -> Tensor:
        total = self.potential.setdefault(name, torch.zeros_like(arriving))
        before = op(total)
        total += arriving
        if name not in self.sent:
            before, self.sent[name] = torch.zeros_like(before), before
        return op(total) - before


@torch.inference_mode(mode=False)
@torch.enable_grad()
def _layers(net: SpikingNet) -> Iterator[_Layer]:
    """Every layer with weights, with the pools and moves before it."""
    for node in net.nodes:
        if not isinstance(node.op, Conv | Linear) and not (isinstance(node.op, Affine) and node.op.scale is not None):
            continue
        chain: list[Op] = []
        source = node.inputs[0]
        while isinstance(net[source].op, _PASSED):
            chain.insert(0, net[source].op)
            source = net[source].inputs[0]
        counted = []
        for op in (_ones_where_nonzero(node.op), node.op):
            inputs = torch.ones(1, *net.shapes[source], dtype=torch.float64, requires_grad=True)
            value = inputs
            for step in chain:
                value = step.paths(value)
            value = op(value) if op is not node.op else op.paths(value)
            counted.append(torch.autograd.grad(value.sum(), inputs)[0][0])
        yield _Layer(source, counted[0], float(counted[1].sum()))


def _ones_where_nonzero(op: Op) -> Op:
    """The operation with 1 for each nonzero weight, and no bias, in float64."""
    if isinstance(op, Conv | Linear):
        return replace(op, weight=(op.weight != 0).double(), bias=None)
    assert isinstance(op, Affine)
    assert op.scale is not None
    return Affine(scale=(op.scale != 0).double())
