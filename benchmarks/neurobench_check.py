"""Our NeuroBench metrics beside those of the neurobench package, on one small network.

    python benchmarks/neurobench_check.py [--out benchmarks/results/neurobench.json]

Needs the environment of `make .venv-peers/installed`, where neurobench is without what it asks for: its metrics alone
are imported, not its data sets. The package sees torch layers with our folded weights and, between them, neurons
of snnTorch's base class that compute ours. The network has random weights, a fifth of them zero, no biases, and sees
MNIST's pixels, most of them zero: every metric has something to count and something to leave out.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import ratenorm as rn
from ratenorm.data import load
from ratenorm.graph.ops import Fire
from ratenorm.interop.units import express
from ratenorm.workflows.environment import hardware, versions

IMAGES, STEPS = 4, 8


def small(x: Tensor) -> rn.SpikingNet:
    """Two convolutions with pools, and a linear layer."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(8 * 49, 10, bias=False),
    )  # fmt: skip
    with torch.no_grad():
        for weight in model.parameters():
            weight[torch.rand_like(weight) < 0.2] = 0.0
    return rn.convert(model, "percentile:99", example=x[:1], calibration=x, v0=0.5).net


def package() -> Any:
    """The parts of neurobench that are needed. Its data sets ask for packages that are not: they get stand-ins."""
    for name in ("tonic", "tonic.datasets", "torchaudio", "torchaudio.datasets", "numba", "llvmlite"):
        if name not in sys.modules:
            sys.modules[name] = ModuleType(name)
    from neurobench.metrics.static import ConnectionSparsity, Footprint
    from neurobench.metrics.workload import ActivationSparsity, MembraneUpdates, SynapticOperations
    from neurobench.models import NeuroBenchModel

    return NeuroBenchModel, (Footprint, ConnectionSparsity), (ActivationSparsity, MembraneUpdates, SynapticOperations)


def network_of(net: rn.SpikingNet) -> nn.Module:
    """The folded network as torch layers, with neurons that neurobench knows as spiking."""
    import snntorch

    class Neuron(snntorch.SpikingNeuron):
        """Eq. 3, under the base class by which neurobench finds neurons and their potential."""

        def __init__(self, op: Fire, shape: tuple[int, ...]) -> None:
            super().__init__(threshold=float(op.threshold), init_hidden=True)
            self.start, self.level = op.start.expand(shape).clone(), op.threshold
            self.mem = self.start

        def begin(self, batch: int) -> None:
            self.mem = self.start.expand(batch, *self.start.shape).clone()

        def forward(self, current: Tensor) -> Tensor:
            charged = self.mem + current
            spikes = (charged >= self.level).float()
            self.mem = charged - self.level * spikes
            return spikes

    layers: list[nn.Module] = []
    for unit in express(net, "fold").units:
        v = unit.values
        if unit.kind == "Conv2d":
            out, inputs, *kernel = v["weight"].shape
            layer: nn.Module = nn.Conv2d(inputs, out, tuple(kernel), v["stride"], v["padding"])
        elif unit.kind == "Affine":
            layer = nn.Linear(v["weight"].shape[1], len(v["weight"]))
        elif unit.kind == "IF":
            op = net[unit.source].op
            assert isinstance(op, Fire)
            layers.append(Neuron(op, net.shapes[unit.source]))
            continue
        else:
            layers += [nn.Flatten()] if unit.kind == "Flatten" else []
            continue
        layer.weight.data, layer.bias.data = v["weight"].clone(), v["bias"].clone()
        layers.append(layer)
    return nn.Sequential(*layers)


@torch.no_grad()
def theirs(model: nn.Module, x: Tensor) -> dict[str, Any]:
    """The metrics as the package computes them."""
    base, static, workload = package()

    class Wrapped(base):  # type: ignore[misc]
        def __call__(self, batch: Tensor) -> Tensor:
            return torch.stack([model(batch) for _ in range(STEPS)]).mean(0)

        def __net__(self) -> nn.Module:
            return model

    wrapped = Wrapped()
    import snntorch

    wrapped.add_activation_module(snntorch.SpikingNeuron)
    for layer in model:
        if hasattr(layer, "begin"):
            layer.begin(len(x))
    found: dict[str, Any] = {metric.__name__: metric()(wrapped) for metric in static}
    wrapped.register_hooks()
    logits = wrapped(x)
    data = (x, torch.zeros(len(x)))
    found |= {metric.__name__: metric()(wrapped, logits, data) for metric in workload}
    return found | {"logits": logits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/neurobench.json"))
    args = parser.parse_args()
    x = load("mnist", "test").images[:IMAGES].reshape(IMAGES, 1, 28, 28).float() / 255
    net = small(x)
    other = theirs(network_of(net), x)
    ours = rn.neurobench_metrics(net, x, STEPS)
    logits = rn.simulate(net, x, STEPS).logits[-1]
    pairs: dict[str, tuple[float, float]] = {
        "ActivationSparsity": (ours["ActivationSparsity"], other["ActivationSparsity"]),
        "MembraneUpdates": (ours["MembraneUpdates"], other["MembraneUpdates"]),
    }
    pairs |= {k: (ours["SynapticOperations"][k], other["SynapticOperations"][k]) for k in ours["SynapticOperations"]}
    weights = [layer.weight for layer in network_of(net) if hasattr(layer, "weight")]
    folded = sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)
    pairs["ConnectionSparsity, folded"] = (round(folded, 4), other["ConnectionSparsity"])  # it rounds to 4 digits
    for name, (a, b) in pairs.items():
        verdict = "equal" if abs(a - b) <= 1e-9 * abs(b) else "DIFFERENT"
        print(f"{name:28} ours {a:>18,.6f}   neurobench {b:>18,.6f}   {verdict}")
    forms = {  # of another form of the network: ours before pools are folded, theirs with potentials as buffers
        "Footprint": (ours["Footprint"], other["Footprint"]),
        "ConnectionSparsity": (ours["ConnectionSparsity"], other["ConnectionSparsity"]),
    }
    figures = {
        "network": "two convolutions and a linear layer, random weights",
        "images": IMAGES,
        "steps": STEPS,
        "logits_off_by": float((logits - other["logits"]).abs().max()),
        "ours_and_theirs": pairs,
        "equal": all(abs(a - b) <= 1e-9 * abs(b) for a, b in pairs.values()),
        "of_other_forms_of_the_network": forms,
        "neurons_times_steps": sum(net.neurons.values()) * STEPS,
        "versions": versions() | {p: version(p) for p in ("neurobench", "snntorch")},
        "hardware": hardware(),
    }
    args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
