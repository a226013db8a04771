"""The same spiking network on ratenorm, SpikingJelly, sinabs and snnTorch: equal spikes shown, times as ratios.

    python benchmarks/peers.py [--model vgg16] [--networks trained.safetensors …] [--steps 32] [--batches 1 16]
                               [--repeats 6] [--out benchmarks/results/peers.json]

Needs an environment of its own, see benchmarks/README.md. Every library gets the network that `convert` made, with
its weights, thresholds and channels-last images; only the neurons are the library's, set to soft reset, as many threads
for all. Modes: "s" is a loop over steps, "m" hands all steps to each layer at once.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine import best
from networks import Subject, subject
from ratenorm.graph.net import SpikingNet, run
from ratenorm.graph.ops import Fire, MaxPool
from ratenorm.simulate.simulate import simulate
from ratenorm.workflows.environment import hardware, versions

Neurons = dict[str, Callable[[Tensor], Tensor]]  # by population: currents to spikes


class Counter:
    """Runs a network with a library's neurons; counts spikes where asked to."""

    def __init__(self, net: SpikingNet, neurons: Neurons) -> None:
        self.net, self.neurons = net, neurons
        self.spikes: dict[str, float] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        def visit(node: Any, value: Tensor) -> Tensor:
            if isinstance(node.op, Fire):
                value = self.neurons[node.name](value)
                if self.spikes is not None:
                    self.spikes[node.name] = self.spikes.get(node.name, 0.0) + float(value.sum())
            return value

        return run(self.net, x, visit)


class Current(Fire):
    """A population that hands its current on, for the library's neurons to fire."""

    def __call__(self, *inputs: Tensor) -> Tensor:
        return inputs[0]


def bare(net: SpikingNet) -> SpikingNet:
    """The network without our neurons, weights channels last."""
    nodes = tuple(
        replace(n, op=Current(n.op.threshold, n.op.start)) if isinstance(n.op, Fire) else n for n in net.nodes
    )
    return replace(net, nodes=nodes).map_tensors(
        lambda t: t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t
    )


def threshold(op: Any) -> float:
    return float(op.threshold.flatten()[0])


def spikingjelly(net: SpikingNet, steps: int, mode: str) -> Callable[[Tensor], tuple[Tensor, Counter]]:
    from spikingjelly.activation_based import functional, neuron

    nodes = {p.name: neuron.IFNode(v_threshold=threshold(p.op), v_reset=None, step_mode=mode) for p in net.populations}
    modules = nn.ModuleList(nodes.values()).eval()

    def by_step(x: Tensor, counter: Counter) -> Tensor:
        total = counter(x)
        for _ in range(steps - 1):
            total = total + counter(x)
        return total / steps

    def at_once(x: Tensor, counter: Counter) -> Tensor:
        out = counter(x.expand(steps, *x.shape).flatten(0, 1))
        return out.view(steps, len(x), -1).mean(0)

    def go(x: Tensor, count: bool = False) -> tuple[Tensor, Counter]:
        functional.reset_net(modules)
        if mode == "s":
            neurons: Neurons = dict(nodes)
        else:
            neurons = {
                name: lambda v, node=node: node(v.view(steps, -1, *v.shape[1:])).flatten(0, 1)
                for name, node in nodes.items()
            }
        counter = Counter(net, neurons)
        counter.spikes = {} if count else None
        with torch.no_grad():
            return (by_step if mode == "s" else at_once)(x, counter), counter

    return go


def sinabs(net: SpikingNet, steps: int) -> Callable[[Tensor], tuple[Tensor, Counter]]:
    from sinabs.activation import MembraneSubtract, SingleSpike
    from sinabs.layers import IAFSqueeze

    def go(x: Tensor, count: bool = False) -> tuple[Tensor, Counter]:
        nodes = {
            p.name: IAFSqueeze(
                batch_size=len(x),
                spike_threshold=torch.tensor(threshold(p.op)),
                spike_fn=SingleSpike,
                reset_fn=MembraneSubtract(),
                min_v_mem=None,
            )
            for p in net.populations
        }
        counter = Counter(net, dict(nodes))
        counter.spikes = {} if count else None
        with torch.no_grad():
            out = counter(x.unsqueeze(1).expand(-1, steps, *x.shape[1:]).flatten(0, 1))
        return out.view(len(x), steps, -1).mean(1), counter

    return go


def snntorch(net: SpikingNet, steps: int) -> Callable[[Tensor], tuple[Tensor, Counter]]:
    import snntorch as snn

    leaky = {
        p.name: snn.Leaky(beta=1.0, threshold=threshold(p.op), reset_mechanism="subtract", reset_delay=True)
        for p in net.populations
    }

    def go(x: Tensor, count: bool = False) -> tuple[Tensor, Counter]:
        memory: dict[str, Tensor] = {}

        def fire(v: Tensor, name: str) -> Tensor:
            spikes, memory[name] = leaky[name](v, memory.get(name, torch.zeros_like(v)))
            return spikes

        counter = Counter(net, {name: partial(fire, name=name) for name in leaky})
        counter.spikes = {} if count else None
        with torch.no_grad():
            total = counter(x)
            for _ in range(steps - 1):
                total = total + counter(x)
        return total / steps, counter

    return go


def contenders(net: SpikingNet, steps: int) -> dict[str, Callable[..., tuple[Tensor, Counter]]]:
    """The libraries that are installed; at least one must be."""
    makers = {
        "spikingjelly s": lambda: spikingjelly(net, steps, "s"),
        "spikingjelly m": lambda: spikingjelly(net, steps, "m"),
        "sinabs": lambda: sinabs(net, steps),
        "snntorch": lambda: snntorch(net, steps),
    }
    found = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except ImportError as error:
            print(f"  {name} is left out: {error}")
    if not found:
        raise SystemExit("None of spikingjelly, sinabs, snntorch is installed: see benchmarks/README.md.")
    return found


def compare(what: Subject, steps: int, batch: int, repeats: int) -> dict[str, Any]:
    net, x = what.conversion.net, what.images[:batch].contiguous(memory_format=torch.channels_last)
    if any(isinstance(n.op, MaxPool) for n in net.nodes) or any(p.op.threshold.numel() > 1 for p in net.populations):
        raise SystemExit("The comparison is for networks without max-pooling and with one threshold a layer.")
    peers = contenders(bare(net), steps)
    ours = simulate(net, x, steps, engine="auto")
    expected = {layer.name: float(layer.counts.sum()) for layer in ours.layers}
    jobs: dict[str, Callable[[], object]] = {"ratenorm": partial(simulate, net, x, steps, engine="auto")}
    jobs |= {name: partial(go, x) for name, go in peers.items()}
    row: dict[str, Any] = {"batch": batch, "steps": steps, "spikes": {"ratenorm": sum(expected.values())}}
    row["different_spikes"] = {}
    for name, go in peers.items():
        counted = go(x, count=True)[1].spikes or {}
        row["spikes"][name] = sum(counted.values())
        row["different_spikes"][name] = sum(abs(counted[k] - expected[k]) for k in expected)
    seconds = best(jobs, repeats)
    row["milliseconds_an_image"] = {name: 1e3 * s / batch for name, s in seconds.items()}
    row["times_ratenorm"] = {name: s / seconds["ratenorm"] for name, s in seconds.items() if name != "ratenorm"}
    return row


def show(row: dict[str, Any]) -> None:
    for name, milliseconds in row["milliseconds_an_image"].items():
        ratio = row["times_ratenorm"].get(name, 1.0)
        total, off = row["spikes"][name], row["different_spikes"].get(name, 0.0)
        print(
            f"  batch {row['batch']:3}  {name:15} {milliseconds:9.1f} ms an image  {ratio:6.1f} x  {total:.0f} spikes "
            f"({off:.0f} different)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--networks", type=Path, nargs="*", default=[], help="trained networks, their data at hand")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/peers.json"))
    args = parser.parse_args()
    networks = []
    for file in args.networks or [None]:
        what = subject(args.model, file, max(args.batches))
        print(f"{what.name}, {what.source}, T = {args.steps}")
        rows = [compare(what, args.steps, batch, args.repeats) for batch in args.batches]
        networks.append({**what.describe(), "rows": rows})
        for row in rows:
            show(row)
    installed = {}
    for package in ("spikingjelly", "sinabs", "snntorch"):
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    figures = {"seed": 0, "networks": networks, "hardware": hardware()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(figures | {"versions": versions() | installed}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
