"""Build the playground: one HTML page that runs CNN-7's spiking network in the browser.

    python playground/build.py            writes docs/playground.html

The page holds the network's weights as whole numbers on their grids, so that JavaScript computes the same sums as
Python. `tests/playground` compares every spike. The early-exit rule is fitted on held-out training images.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ratenorm as rn
from ratenorm.convert.convert import with_start
from ratenorm.data import Batches, ImageSet, split_holdout
from ratenorm.graph.exact import units_of
from ratenorm.graph.ops import AvgPool, Conv, Fire, Linear

NETWORK = "cnn7-mnist"
STEPS = 32  # the largest T of the page
STARTS = (0.0, 0.5)
HELD_OUT, HELD_OUT_SEED = 2000, 0  # as the network's training held them out
HERE = Path(__file__).parent
OUT = HERE.parent / "docs" / "playground.html"


def packed(tensor: Tensor) -> str:
    """The numbers of a tensor, little-endian, as base64."""
    return base64.b64encode(tensor.contiguous().numpy().tobytes()).decode()


def on_grid(weight: Tensor, units: Tensor) -> dict[str, Any]:
    """A weight as whole numbers, and the unit of each output channel as a power of two."""
    whole = weight.double() / units.view(-1, *[1] * (weight.ndim - 1))
    if not torch.equal(whole, whole.round()):
        raise ValueError("the weights do not lie on their grid")
    kind = torch.int16 if float(whole.abs().max()) < 2**15 else torch.int32
    exponents = torch.log2(units)
    if not torch.equal(exponents, exponents.round()):
        raise ValueError("a unit is no power of two")
    return {
        "shape": list(weight.shape),
        "bits": 16 if kind == torch.int16 else 32,
        "values": packed(whole.to(kind)),
        "exponents": [int(e) for e in exponents],
    }


def layers(net: rn.SpikingNet) -> list[dict[str, Any]]:
    """What the page has to compute, in order."""
    found: list[dict[str, Any]] = []
    for node in net.nodes:
        op = node.op
        if isinstance(op, Conv | Linear):
            first = node.name in net.sums.in_double
            exact = net.sums.in_double.get(node.name, op)
            assert isinstance(exact, Conv | Linear)
            units = units_of(exact.weight)
            units = torch.where(torch.isinf(units), torch.ones_like(units), units)  # a channel of zeros
            kind = "conv" if isinstance(op, Conv) else "linear"
            entry: dict[str, Any] = {"kind": kind, "weight": on_grid(exact.weight, units), "analog": first}
            entry["bias"] = (torch.zeros(len(op.weight)) if op.bias is None else op.bias).tolist()
            found.append(entry)
        elif isinstance(op, Fire):
            shape = list(net.shapes[node.name])
            found.append({"kind": "fire", "threshold": float(op.threshold), "shape": shape, "name": node.name})
        elif isinstance(op, AvgPool):
            if op.kernel != (2, 2) or op.stride != (2, 2) or op.ceil_mode:
                raise ValueError(f"the page has no pool like {op}")
            found.append({"kind": "pool"})
    return found


def exit_rule(net: rn.SpikingNet, spec: rn.NetworkSpec) -> list[float]:
    """The threshold of the margin for each step; 1e30 where the rule never answers, -1e30 where it always does."""
    held = split_holdout(rn.data.load("mnist", "train"), HELD_OUT, HELD_OUT_SEED)[1]
    logits, labels = [], []
    for x, y in Batches(held, 500, normalise=spec.normalisation):
        logits.append(rn.simulate(net, x, STEPS).logits)
        labels.append(y)
    rule = rn.fit_early_exit(torch.cat(logits, 1), torch.cat(labels), allowed_loss=0.001)
    return [max(-1e30, min(1e30, one)) for one in rule.thresholds]


def samples(images: ImageSet) -> list[str]:
    """The first test digit of each class."""
    firsts = [int((images.labels == digit).nonzero()[0]) for digit in range(10)]
    return [packed(images.images[i, 0].contiguous()) for i in firsts]


def content() -> dict[str, Any]:
    model, spec = rn.zoo.load(NETWORK)
    net = rn.convert(model, example=torch.zeros(1, 1, 28, 28)).net
    return {
        "network": NETWORK,
        "steps": STEPS,
        "mean": spec.mean[0],
        "std": spec.std[0],
        "layers": layers(net),
        "exits": {f"{v0:g}": exit_rule(with_start(net, v0), spec) for v0 in STARTS},
        "samples": samples(rn.data.load("mnist", "test")),
    }


def page(data: dict[str, Any]) -> str:
    template = (HERE / "template.html").read_text(encoding="utf-8")
    parts = {name: (HERE / name).read_text(encoding="utf-8") for name in ("style.css", "network.js", "page.js")}
    for name, text in parts.items():
        template = template.replace(f"/*{name}*/", text)
    return template.replace("/*data*/", json.dumps(data, separators=(",", ":")))


if __name__ == "__main__":
    OUT.write_text(page(content()), encoding="utf-8")
    print(f"{OUT.name}: {OUT.stat().st_size / 1000:.0f} kB")
