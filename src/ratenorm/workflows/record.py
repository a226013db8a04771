"""From evaluations to a record (docs/records.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ratenorm.convert.thresholds import Method
from ratenorm.core.coding import Coding, Poisson
from ratenorm.graph.net import Graph, SpikingNet
from ratenorm.graph.ops import Fire
from ratenorm.records import FORMAT, VERSION
from ratenorm.simulate.evaluate import BINS, Evaluation, LayerTotals
from ratenorm.workflows.environment import hardware, versions


def run_entry(
    name: str,
    network: str,
    net: SpikingNet,
    method: Method,
    v0: float,
    result: Evaluation,
    coding: Coding | None = None,
    calibrated: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """One converted network and how it did."""
    images = result.images
    papers = list(method.papers) + (["bu2022"] if v0 == 0.5 else [])
    papers += [paper for one in calibrated for paper in one.get("papers", ())]
    entry: dict[str, Any] = {
        "name": name,
        "network": network,
        "method": method.to_json(),
        "papers": list(dict.fromkeys(papers)),
        "v0": v0,
        "coding": "poisson" if isinstance(coding, Poisson) else "constant",
        "engine": result.engine.split()[0].rstrip(":,"),
        "choices": result.choices,
        "steps": result.steps,
        "ann_accuracy": result.analog_accuracy,
        "accuracy": result.accuracy,
        "images_per_second": images / result.seconds if result.seconds > 0 else None,
        "neurons": result.neurons,
        "spikes": (result.spikes / images).tolist(),
        "synaptic_ops": (result.synaptic_ops / images).tolist(),
        "input_macs": net.input_macs,
        "membrane_updates": result.neurons,
        "layers": [_layer(net, layer, images, result.steps) for layer in result.layers],
    }
    if result.neurobench is not None:
        entry["neurobench"] = result.neurobench
    if calibrated:
        entry["calibrated"] = [dict(one) for one in calibrated]
    if any(isinstance(node.op, Fire) and node.op.signed for node in net.populations):
        entry["spike_kind"] = "signed"
    return entry


def _layer(net: SpikingNet, layer: LayerTotals, images: int, steps: int) -> dict[str, Any]:
    op = net[layer.name].op
    assert isinstance(op, Fire)
    seen = images * layer.neurons
    k: list[float | None] = [None] * steps
    omega: float | None = None
    if layer.fit is not None:
        k = [value if math.isfinite(value) else None for value in layer.fit.k.tolist()]
        omega = layer.fit.omega if math.isfinite(layer.fit.omega) else None
    return {
        "name": layer.name,
        "neurons": layer.neurons,
        "threshold": float(op.threshold.mean()),
        "threshold_min": float(op.threshold.min()),
        "threshold_max": float(op.threshold.max()),
        "omega": omega,
        "k": k,
        "spikes": (layer.spikes / images).tolist(),
        "synaptic_ops": (layer.synaptic_ops / images).tolist(),
        "rate_histogram": {"edges": [i / BINS for i in range(BINS + 1)], "counts": layer.rates.tolist()},
        "saturated": layer.saturated / seen,
        "dead": layer.dead / seen,
        "negative": layer.negative / seen,
    }


def ann_entry(name: str, analog: Graph, accuracy: float, images_per_second: float | None) -> dict[str, Any]:
    """The network before conversion."""
    return {
        "name": name,
        "accuracy": accuracy,
        "macs": sum(analog.macs.values()),
        "images_per_second": images_per_second,
        "parameters": analog.parameters,
    }


def make_record(
    kind: str,
    title: str,
    config: dict[str, Any],
    *,
    seed: int,
    seconds: float,
    data: dict[str, Any],
    ann: dict[str, Any],
    runs: Sequence[dict[str, Any]],
    scale: str = "full",
    **optional: Any,
) -> dict[str, Any]:
    """A whole record, ready for `records.write`."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "title": title,
        "config": config,
        "seed": seed,
        "versions": versions(),
        "hardware": hardware(),
        "seconds": seconds,
        "scale": scale,
        "data": data,
        "ann": ann,
        "runs": list(runs),
        **{key: value for key, value in optional.items() if value is not None},
    }


UNFINISHED = "unfinished"  # how the scale of a record begins that has not all its runs yet


def scale_of_part(runs: Sequence[dict[str, Any]], todo: int, scale: str) -> str:
    """The scale of a record that may not have all its runs yet, or some on a part of the images only."""
    parts = [run["images"] for run in runs if "images" in run]
    if len(runs) - len(parts) == todo:
        return scale
    few = f", {len(parts)} more on the first {min(parts):,} images" if parts else ""
    return f"{UNFINISHED}: {len(runs) - len(parts)} of {todo} runs{few}; {scale}"


def unfinished(record: dict[str, Any]) -> str:
    """How far a record is that has not all its runs yet, in words; nothing where it has."""
    scale = str(record["scale"])
    return scale.partition("; ")[0].removeprefix(f"{UNFINISHED}: ") if scale.startswith(UNFINISHED) else ""


def scale_of_runs(record: dict[str, Any]) -> str:
    """At which scale the runs were made that a record has, whether or not others are still missing."""
    scale = str(record["scale"])
    return scale.partition("; ")[2] if scale.startswith(UNFINISHED) else scale


def scale_of(images: int, available: int, what: str) -> str:
    """How large an experiment was, in the words a record uses."""
    return "full" if images >= available else f"reduced: {images:,} of {available:,} {what}"
