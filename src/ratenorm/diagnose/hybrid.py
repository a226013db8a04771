"""Simulations in which some layers are replaced by their ANN counterparts, or silent: the instruments of diagnosis."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from ratenorm.graph.net import INPUT, Graph, Node, SpikingNet, run
from ratenorm.graph.ops import Fire
from ratenorm.simulate.dense import DenseSimulation


@torch.no_grad()
def analog_run(net: SpikingNet, x: Tensor, unclipped: Collection[str] = ()) -> Tensor:
    """The clipped ANN's output, with the ceiling of some layers taken away."""

    values: dict[str, Tensor] = {}

    def visit(node: Node, value: Tensor) -> Tensor:
        values[node.name] = value
        if isinstance(node.op, Fire) and node.name in unclipped:
            return (values[node.inputs[0]] / node.op.threshold).clamp_min(0.0)
        return value

    return run(net, x, visit)


@torch.no_grad()
def currents_at_rest(net: SpikingNet) -> dict[str, float]:
    """For every population that sees spikes only: the current, in thresholds and root mean square, that drives it while
    no neuron before it fires. What comes late then comes to a potential that is wrong already."""
    values: dict[str, Tensor] = {}
    found: dict[str, float] = {}
    seeing = {INPUT}  # what the image reaches other than by spikes

    def silent(node: Node, value: Tensor) -> Tensor:
        values[node.name] = value
        if not isinstance(node.op, Fire):
            if any(name in seeing for name in node.inputs):
                seeing.add(node.name)
            return value
        if node.inputs[0] not in seeing:
            found[node.name] = float((values[node.inputs[0]] / node.op.threshold).square().mean().sqrt())
        return torch.zeros_like(value)

    like = net.populations[0].op.threshold if net.populations else torch.empty(0)  # type: ignore[attr-defined]
    run(net, like.new_zeros(1, *net.input_shape), silent)
    return found


class PartlyAnalog(DenseSimulation):
    """A simulation in which the populations named in `analog` hand on their analog rates instead of spikes.

    Whatever lies before them then no longer matters: the error of the layers up to there is taken out.
    """

    def __init__(self, net: SpikingNet, x: Tensor, rates: dict[str, Tensor], analog: Collection[str]) -> None:
        super().__init__(net, x)
        self._rates = {name: rates[name] for name in analog}

    def _fire(self, pop, current, elapsed):  # type: ignore[no-untyped-def]
        spikes, tally = super()._fire(pop, current, elapsed)
        rates = self._rates.get(pop.node.name)
        return spikes if rates is None else rates.expand(len(elapsed), *rates.shape).flatten(0, 1), tally


def outputs(net: SpikingNet, x: Tensor, rates: dict[str, Tensor], analog: Collection[str], steps: int) -> Tensor:
    """The mean output for each image after `steps` steps with some populations analog."""
    simulation = PartlyAnalog(net, x, rates, analog)
    for _ in range(steps):
        simulation.advance(1)
    return simulation.logits[-1][-1]


def original(analog: Graph, x: Tensor) -> Tensor:
    """The output of the network before conversion."""
    with torch.no_grad():
        return run(analog, x)
