"""The engines beside one forward pass of the ANN: speed, cost over T and over density, and how near to the limit.

    python benchmarks/engine.py [--model vgg16] [--networks trained.safetensors …] [--steps 32] [--batches 1 16]
                                [--repeats 5] [--out benchmarks/results/engine.json]

Everything is measured in turn in one run, best of several: the machine's noise only ever adds time. The ANN is the
same network before conversion, BatchNorm folded, channels last, with as many threads. Nothing else should run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from networks import Subject, subject
from ratenorm.convert.grid import on_grid
from ratenorm.graph.net import INPUT, Node, SpikingNet, run
from ratenorm.graph.ops import AdaptiveAvgPool, Conv, Fire, Input
from ratenorm.simulate.simulate import simulate
from ratenorm.workflows.environment import hardware, versions

AGAIN = 8  # times that two engines are timed once more where they should be equal and are not
SHORT_TURNS = 20  # and for one long turn then: what the machine does meanwhile hits both alike
LEAST = 0.25  # seconds for each job in a turn: short ones run several times, since noise hits them harder


def best(jobs: dict[str, Callable[[], object]], repeats: int, least_spent: float = LEAST) -> dict[str, float]:
    """Seconds of each job, the least of several turns. In every turn the first run of a job does not count: caches are
    its own from then on, and no thread of the job before is still awake."""
    least = dict.fromkeys(jobs, float("inf"))
    for _ in range(repeats):
        for name, job in jobs.items():
            job()
            spent = 0.0
            while spent <= least_spent:
                began = time.perf_counter()
                job()
                took = time.perf_counter() - began
                least[name], spent = min(least[name], took), spent + took
    return least


def versus_ann(what: Subject, steps: int, batch: int, repeats: int, dense: bool) -> dict[str, Any]:
    """Simulation of a batch beside one forward pass of the ANN."""
    net = what.conversion.net
    x = what.images[:batch].contiguous(memory_format=torch.channels_last)
    analog = what.conversion.analog.map_tensors(
        lambda t: t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t
    )

    def ann() -> Tensor:
        with torch.inference_mode():
            return run(analog, x)

    jobs: dict[str, Callable[[], object]] = {
        "ann": ann,
        "event": lambda: simulate(net, x, steps, engine="event"),
        "auto": lambda: simulate(net, x, steps, engine="auto"),
    }
    if dense:
        jobs["dense"] = lambda: simulate(net, x, steps, engine="dense")
    seconds = best(jobs, repeats)
    result = simulate(net, x, steps, engine="event")
    operations = float(result.synaptic_ops.sum())
    return {
        "batch": batch,
        "steps": steps,
        "milliseconds_an_image": {name: 1e3 * s / batch for name, s in seconds.items()},
        "ratio_to_ann": {name: s / seconds["ann"] for name, s in seconds.items() if name != "ann"},
        "synaptic_ops_an_image": operations / batch,
        "ann_macs": sum(net.macs.values()),
        "synaptic_ops_a_second": operations / seconds["event"],
        "density": {layer.name: float(layer.spikes.sum()) / (layer.neurons * batch * steps) for layer in result.layers},
    }


def over_steps(what: Subject, repeats: int) -> list[dict[str, float]]:
    """Cost and spikes of the same images over T."""
    net, x = what.conversion.net, what.images[:4]
    rows = []
    for steps in (8, 16, 32, 64, 128):
        seconds = best({"event": partial(simulate, net, x, steps, engine="event")}, repeats)["event"]
        operations = float(simulate(net, x, steps, engine="event").synaptic_ops.sum())
        rows.append({"steps": steps, "seconds": seconds, "synaptic_ops": operations})
    return rows


def layer_at(density: float, channels: int, size: int) -> tuple[SpikingNet, Tensor]:
    """A population that spikes at a given density in random order, before a 3x3 convolution with neurons of its own,
    which never spike: what they drive, the mean of each channel, is there to have a small output and costs nothing."""
    shape = (channels, size, size)
    generator = torch.Generator().manual_seed(1)
    source = Fire(torch.ones(1), torch.rand(shape, generator=generator))
    weight = torch.randn(channels, channels, 3, 3, generator=generator) * 0.05
    conv = Conv(weight, torch.zeros(channels), (1, 1), (1, 1, 1, 1))
    nodes = (Node(INPUT, Input()), Node("source", source, (INPUT,)), Node("conv", conv, ("source",)))
    fire = Node("fire", Fire(torch.full((1,), 2.0**20), torch.zeros(1)), ("conv",))
    mean = Node("mean", AdaptiveAvgPool((1, 1)), ("fire",))
    x = torch.full((8, *shape), density)
    return on_grid(SpikingNet((*nodes, fire, mean), "mean", shape)), x


def over_density(channels: int, size: int, repeats: int) -> list[dict[str, float]]:
    """A 3x3 convolution between two populations at rising densities, all three together: a difference of two times
    would be lost in their noise where spikes are few."""
    rows = []
    for density in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8):
        net, x = layer_at(density, channels, size)
        jobs: dict[str, Callable[[], object]] = {
            name: partial(simulate, net, x, 32, engine=name) for name in ("event", "auto", "dense")
        }
        seconds = best(jobs, repeats)
        for _ in range(AGAIN):  # where noise hit one of the two, both get more turns, whichever it was
            if abs(seconds["auto"] / min(seconds["event"], seconds["dense"]) - 1) < 0.04:
                break
            more = best({name: jobs[name] for name in ("event", "auto")}, SHORT_TURNS * repeats, least_spent=0.0)
            seconds |= {name: min(took, seconds[name]) for name, took in more.items()}
        better = min(seconds["event"], seconds["dense"])
        rows.append({"density": density, **seconds, "auto_to_better": seconds["auto"] / better})
    return rows


def additions_a_second() -> dict[str, float]:
    """What one core adds from first-level cache: the limit of the event engine (native/tests/limit.cpp)."""
    source = Path(__file__).parents[1] / "native/tests/limit.cpp"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "limit"
        words = ["-std=c++20", "-O3", "-march=native", "-DRATENORM_ISA=native", f"-I{source.parents[1] / 'src'}"]
        subprocess.run(["c++", *words, str(source), "-o", str(program)], check=True)
        done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    return {"int16": float(done.stdout)}


def slope(rows: list[dict[str, float]]) -> dict[str, float]:
    """seconds = fixed + each * synaptic operations, by least squares, and how much of the cost it explains."""
    x, y = np.array([r["synaptic_ops"] for r in rows]), np.array([r["seconds"] for r in rows])
    each, fixed = np.polyfit(x, y, 1)
    explained = 1 - ((y - fixed - each * x) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    return {"fixed_seconds": float(fixed), "nanoseconds_an_operation": float(each * 1e9), "r2": float(explained)}


def break_even(rows: list[dict[str, float]]) -> float | None:
    """The density at which events cost what the dense engine costs, between two measured ones."""
    for low, high in itertools.pairwise(rows):
        a, b = low["event"] - low["dense"], high["event"] - high["dense"]
        if a < 0 <= b:
            return low["density"] + (high["density"] - low["density"]) * a / (a - b)
    return None


def plot(layers: list[dict[str, Any]], file: Path) -> None:
    """Cost over density, one panel a layer, with the break-even point where the curves cross."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(layers), figsize=(3 * len(layers), 3), sharey=True, layout="constrained")
    for axes, layer in zip(panels, layers, strict=True):
        rows = layer["rows"]
        for name, style in (("dense", "s-"), ("event", "o-"), ("auto", "x--")):
            axes.loglog([r["density"] for r in rows], [1e3 * r[name] for r in rows], style, label=name)
        even = layer["break_even_density"]
        if even is not None:
            axes.axvline(even, color="grey", linewidth=0.8)
        title = "no break-even" if even is None else f"break-even at {even:.0%}"
        axes.set_title(f"{layer['channels']} channels, {layer['size']}x{layer['size']}: {title}", fontsize=8)
        axes.set_xlabel("spikes a neuron and step")
    panels[0].set_ylabel("milliseconds, 8 images, 32 steps")
    panels[0].legend()
    figure.savefig(file)


LAYERS = ((64, 32), (128, 16), (256, 8), (512, 4))  # the 3x3 convolutions of VGG-16 by channels and size


def of_network(what: Subject, args: argparse.Namespace, limit: dict[str, float]) -> dict[str, Any]:
    """Everything that is measured of one network."""
    print(f"{what.name}, {what.source}, T = {args.steps}")
    figures: dict[str, Any] = {**what.describe(), "batches": []}
    for batch in args.batches:
        row = versus_ann(what, args.steps, batch, args.repeats, not args.no_dense)
        row["share_of_limit"] = {name: row["synaptic_ops_a_second"] / adds for name, adds in limit.items()}
        figures["batches"].append(row)
        times = ", ".join(f"{k} {v:.1f} ms" for k, v in row["milliseconds_an_image"].items())
        ratios = ", ".join(f"{k} {v:.2f}" for k, v in row["ratio_to_ann"].items())
        shares = ", ".join(f"{share:.0%} of the {name} limit" for name, share in row["share_of_limit"].items())
        print(f"  batch {batch}: {times} an image; times the ANN: {ratios}; {shares}")
    figures["over_steps"] = over_steps(what, args.repeats)
    figures["cost_of_spikes"] = slope(figures["over_steps"])
    print(
        "  cost over T: {nanoseconds_an_operation:.3f} ns an operation, R2 {r2:.4f}".format(**figures["cost_of_spikes"])
    )
    return figures


def of_layers(repeats: int) -> list[dict[str, Any]]:
    """Cost over density of single layers, and how far `auto` is from the better engine."""
    layers = []
    for channels, size in LAYERS:
        rows = over_density(channels, size, repeats)
        layers.append({"channels": channels, "size": size, "rows": rows, "break_even_density": break_even(rows)})
        print(f"a layer of {channels} channels, {size}x{size}; break-even density {layers[-1]['break_even_density']}")
        for row in rows:
            times = ", ".join(f"{name} {1e3 * row[name]:.1f} ms" for name in ("dense", "event", "auto"))
            print(f"  density {row['density']:5.3f}: {times}; auto {row['auto_to_better']:.2f} times the better")
    return layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vgg16", help="of the stand-in, where no network is given")
    parser.add_argument("--networks", type=Path, nargs="*", default=[], help="trained networks, their data at hand")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-dense", action="store_true", help="leave out the dense engine, which takes longest")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/engine.json"))
    args = parser.parse_args()
    limit = {name: adds * torch.get_num_threads() for name, adds in additions_a_second().items()}
    subjects = [subject(args.model, file, max(args.batches)) for file in args.networks or [None]]
    figures: dict[str, Any] = {
        "limit_additions_a_second": limit,
        "networks": [of_network(what, args, limit) for what in subjects],
        "layers": of_layers(args.repeats),
    }
    figures["auto_to_better_at_worst"] = max(r["auto_to_better"] for layer in figures["layers"] for r in layer["rows"])
    print(f"auto, at worst: {figures['auto_to_better_at_worst']:.2f} times the better engine")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figures |= {"seed": 0, "versions": versions(), "hardware": hardware()}
    args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    plot(figures["layers"], args.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
