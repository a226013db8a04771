"""Run the tables of this folder with NumPy alone:  python simulate.py images.npy STEPS logits.npy

images: float32 [B, ...]; logits: float32 [STEPS, B, classes], the mean so far. All sums are exact in float64.
"""

import json
import sys
from pathlib import Path

import numpy as np


def convolve(x, weight, unit):  # [B, C, ...] and [O, C, ...], in one or two dimensions
    axes = tuple(range(2, weight.ndim))
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in unit["padding"])])
    reach = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], unit["dilation"])]
    steps = tuple(slice(None, None, n) for n in unit["stride"] + unit["dilation"])
    seen = np.lib.stride_tricks.sliding_window_view(x, reach, axes)[(slice(None), slice(None), *steps)]
    return np.moveaxis(np.tensordot(seen, weight, ([1, *(a + len(axes) for a in axes)], [1, *axes])), -1, 1)


def current(unit, x, data):
    weight, x, step = data["weight"].astype(np.float64), x.astype(np.float64), 1.0
    scale, bias = (data[k].reshape(-1, *[1] * (weight.ndim - 2)) for k in ("scale", "bias"))
    if unit["form"] == "double":  # each image on 2^26 steps below its largest value
        step = np.exp2(np.frexp(np.abs(x).reshape(len(x), -1).max(1))[1] - 26.0).reshape(-1, *[1] * (x.ndim - 1))
        x = np.rint(x / step)
    total = x @ weight.T if weight.ndim == 2 else convolve(x, weight, unit)
    return (total * scale * step + bias).astype(np.float32)


def simulate(folder, images, steps):
    folder, still, total, logits = Path(folder), {}, 0.0, []
    index = json.loads((folder / "index.json").read_text())
    units = [(u, {k: np.load(folder / f) for k, f in u["files"].items()}) for u in index["units"]]
    potential = {u["name"]: d["start"] for u, d in units if u["kind"] == "neurons"}  # v(0), in float32
    for t in range(steps):
        value = dict(still)  # what lies before all neurons never changes
        for unit, data in units:
            name, kind = unit["name"], unit["kind"]
            if name in value:
                continue
            x = images if kind == "input" else sum((value[i] for i in unit["inputs"][1:]), value[unit["inputs"][0]])
            if kind == "weights":
                x = current(unit, x, data)
            elif kind == "flatten":
                x = x.reshape(len(x), -1)
            elif kind == "neurons":
                v = potential[name] + (x + data["step_bias"][min(t, len(data["step_bias"]) - 1)])
                x = (v >= data["threshold"]).astype(np.float32)
                potential[name] = v - data["threshold"] * x  # soft reset: what exceeds the threshold stays
            value[name] = x
        still = {u["name"]: value[u["name"]] for u, _ in units if u["static"]}
        total = total + value[index["output"]].astype(np.float64)
        logits.append((total / (t + 1)).astype(np.float32))
    return np.stack(logits)


if __name__ == "__main__":
    np.save(sys.argv[3], simulate(Path(__file__).parent, np.load(sys.argv[1]), int(sys.argv[2])))
