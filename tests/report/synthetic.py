"""A made-up experiment that behaves like a real one: four methods, seven layers, 256 steps."""

from __future__ import annotations

from typing import Any

import numpy as np

LAYERS = [
    ("conv1", 25088),
    ("pool1.conv2", 6272),
    ("conv3", 6272),
    ("conv4", 3136),
    ("conv5", 3136),
    ("fc1", 512),
    ("fc2", 256),
]
METHODS = [
    # name, papers, v0, time constant of the accuracy, mean rate, late gain
    ("Max Norm", ["diehl2015", "rueckauer2017"], 0.0, 42.0, 0.012),
    ("Robust Norm 99.9 %", ["rueckauer2017"], 0.0, 17.0, 0.03),
    ("stage 2", ["ding2021"], 0.0, 8.0, 0.09),
    ("stage 2, v(0) = θ/2", ["ding2021", "bu2022"], 0.5, 2.2, 0.10),
]


def make_record(
    steps: int = 256,
    methods: int = 4,
    layers: int = 7,
    examples: int = 3,
    seed: int = 0,
    side: int = 28,
    coloured: bool = False,
) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    t = np.arange(1, steps + 1)
    runs = [_run(METHODS[m % 4], m, t, LAYERS[:layers], rng) for m in range(methods)]
    if runs:
        runs[-1]["early_exit"] = _early_exit(t, rng)
    record: dict[str, Any] = {
        "format": "ratenorm-record",
        "version": 1,
        "kind": "demo",
        "title": "MNIST in a few time-steps: CNN-7 converted four ways",
        "config": {"steps": steps, "stage1": {"epochs": 4, "lr": 0.1}, "stage2": {"lam": 0.5, "epochs": 1}},
        "seed": seed,
        "versions": {"ratenorm": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6", "python": "3.11.9"},
        "hardware": {"cpu": "AMD EPYC 7B13", "cores": 2, "threads": 2, "memory_gb": 7.8, "device": "cpu"},
        "seconds": 143.2,
        "scale": "reduced: 1,000 of 10,000 test images",
        "data": {"name": "mnist", "split": "test", "images": 1000, "classes": [str(i) for i in range(10)]},
        "ann": {
            "name": "cnn7",
            "accuracy": 0.991,
            "macs": 11_600_000,
            "images_per_second": 5210.0,
            "parameters": 142_000,
        },
        "runs": runs,
    }
    if runs and examples:
        record["examples"] = [_example(runs[-1], i, t, rng, side, coloured) for i in range(examples)]
    if runs:
        record["diagnosis"] = _diagnosis(runs[0])
        record["front"] = [
            {
                "name": run["name"],
                "steps": s,
                "accuracy": run["accuracy"][s - 1],
                "loss": 0.991 - run["accuracy"][s - 1],
                "settings": {"v0": run["v0"]},
            }
            for run in runs
            for s in (1, 2, 4, 8, 16, 32, 64)
            if s <= steps
        ]
        record["paper"] = {"table 1": {"ann_accuracy": 0.9282, "snn_accuracy": 0.9286, "T": 64}}
    return record


def _run(
    method: tuple[Any, ...],
    number: int,
    t: np.ndarray,
    layers: list[tuple[str, int]],
    rng: np.random.Generator,
) -> dict[str, Any]:
    name, papers, v0, tau, rate = method
    name = name if number < 4 else f"{name} #{number}"
    accuracy = 0.9905 - 0.89 * np.exp(-((t / tau) ** 0.9)) + rng.normal(0, 0.0006, t.size)
    run_layers = [_layer(layer, i, t, tau, rate, rng) for i, layer in enumerate(layers)]
    return {
        "name": name,
        "network": "cnn7",
        "method": {"method": "trained" if "stage" in name else "max"},
        "papers": papers,
        "v0": v0,
        "coding": "constant",
        "engine": "event",
        "steps": int(t.size),
        "ann_accuracy": 0.9905,
        "accuracy": np.clip(accuracy, 0, 1).tolist(),
        "images_per_second": 410.0 / (1 + rate),
        "neurons": sum(n for _, n in layers),
        "spikes": np.sum([layer["spikes"] for layer in run_layers], axis=0).tolist(),
        "synaptic_ops": np.sum([layer["synaptic_ops"] for layer in run_layers], axis=0).tolist(),
        "input_macs": 225_792,
        "membrane_updates": sum(n for _, n in layers),
        "layers": run_layers,
    }


def _layer(
    layer: tuple[str, int], depth: int, t: np.ndarray, tau: float, rate: float, rng: np.random.Generator
) -> dict[str, Any]:
    name, neurons = layer
    omega = 1.5 + 0.35 * tau**0.5 * (1 + 0.15 * depth)
    delay = 1 - np.exp(-t / (1 + depth * tau / 12))
    spikes = neurons * rate * delay * (1 + 0.08 * np.sin(t * 1.7 + depth))
    rates = np.minimum(rng.exponential(rate * 3, 4000) * (rng.random(4000) > 0.45), 1.0)
    counts, edges = np.histogram(rates, bins=np.linspace(0, 1, 21))
    return {
        "name": name,
        "neurons": neurons,
        "threshold": 1.0 + depth * 0.4 + tau / 30,
        "threshold_min": 0.8 + depth * 0.3,
        "threshold_max": 1.2 + depth * 0.5 + tau / 20,
        "omega": omega,
        "k": np.minimum(1.0, 1.1 * omega * (1 + depth * 0.25) / t).tolist(),
        "spikes": spikes.tolist(),
        "synaptic_ops": (spikes * 70).tolist(),
        "rate_histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
        "saturated": float((rates >= 1 - 1 / t.size).mean()),
        "dead": float((rates == 0).mean()),
        "negative": 0.04 + 0.01 * depth,
    }


def _early_exit(t: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    exits = np.minimum(rng.geometric(0.28, 1000), t.size)
    return {
        "criterion": "margin",
        "threshold": 0.21,
        "allowed_loss": 0.001,
        "accuracy": 0.9895,
        "mean_steps": float(exits.mean()),
        "worst_steps": int(exits.max()),
        "histogram": np.bincount(exits, minlength=t.size + 1)[1:].tolist(),
    }


def _example(
    run: dict[str, Any], number: int, t: np.ndarray, rng: np.random.Generator, side: int, coloured: bool
) -> dict[str, Any]:
    label = (3 * number + 2) % 10
    final = rng.normal(0, 1.2, 10)
    final[label] = 4.5
    rival = (label + 5) % 10
    final[rival] = 2.6
    early = rng.normal(0, 1.5, (t.size, 10)) / np.sqrt(t)[:, None]
    early[:, rival] += 3.5 / t * (number + 1)
    scores = final * (1 - np.exp(-t / 4))[:, None] + early
    wrong = np.flatnonzero(scores.argmax(1) != scores[-1].argmax())
    image = _digit(side, label, rng)
    return {
        "run": run["name"],
        "index": 7 + 31 * number,
        "label": label,
        "image": np.repeat(image[..., None], 3, 2).tolist() if coloured else image.tolist(),
        "scores": scores.tolist(),
        "settled": int(wrong[-1] + 2) if wrong.size else 1,
        "layers": [
            {
                "name": layer["name"],
                "k": np.minimum(
                    1, np.array(layer["k"]) * (0.6 + 0.2 * number) * rng.uniform(0.9, 1.1, t.size)
                ).tolist(),
                "first_spike": 1 + depth // 2,
                "raster": _raster(t, depth, rng),
            }
            for depth, layer in enumerate(run["layers"])
        ],
    }


def _raster(t: np.ndarray, depth: int, rng: np.random.Generator) -> list[list[int]]:
    rates = np.minimum(rng.exponential(0.16, 64) * (rng.random(64) > 0.3), 1)
    fired = (np.floor(rates[:, None] * t + 0.5) - np.floor(rates[:, None] * (t - 1) + 0.5)) > 0
    fired &= t > depth // 2
    neurons, steps = np.nonzero(fired)
    return [[int(step) + 1, int(neuron)] for neuron, step in zip(neurons, steps)]


def _digit(side: int, label: int, rng: np.random.Generator) -> np.ndarray:
    y, x = np.mgrid[0:side, 0:side] / side - 0.5
    ring = np.exp(-((np.hypot(x * (1 + label / 10), y) - 0.28) ** 2) / 0.004)
    stroke = np.exp(-((x + (label - 5) / 12 * y) ** 2) / 0.003) * (np.abs(y) < 0.36)
    return np.clip(255 * np.maximum(ring * (label % 3 != 1), stroke * (label % 2)), 0, 255).astype(int)


def _diagnosis(run: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": run["name"],
        "findings": [
            {
                "layer": "fc1",
                "cost": 3.1,
                "text": "fc1 fires at 41 % of its analog rate after 32 steps.",
                "remedy": "Lower its threshold, or train it in stage 2.",
            },
            {
                "layer": None,
                "cost": None,
                "text": "61 % of all neurons never fire.",
                "remedy": "Nothing to mend: they are silent in the ANN too.",
            },
        ],
        "layers": [
            {
                "name": layer["name"],
                "slope": 0.98 - 0.05 * i,
                "correlation": 0.999 - 0.004 * i,
                "k": layer["k"][-1],
                "omega": layer["omega"],
                "saturated": layer["saturated"],
                "dead": layer["dead"],
                "negative": layer["negative"],
                "first_spike": 1 + i // 2,
            }
            for i, layer in enumerate(run["layers"])
        ],
    }
