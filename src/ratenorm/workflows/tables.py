"""A record as a table for the terminal."""

from __future__ import annotations

from typing import Any

from ratenorm.core.energy import Cost, steps_to
from ratenorm.io.text import printable
from ratenorm.simulate.result import said_of

SHOWN = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def accuracy_table(record: dict[str, Any]) -> str:
    """Accuracy at each T for every run beside the ANN, and what it costs to come within 1 point of it."""
    return printable(_accuracy_table(record))


def _accuracy_table(record: dict[str, Any]) -> str:
    ann = record["ann"]
    if not record["runs"]:
        return (
            f"{record['title']}\n{record['data']['images']:,} {record['data']['split']} images of "
            f"{record['data']['name']}; ANN ({ann['name']}) {100 * ann['accuracy']:.2f} %. No spiking network was run."
        )
    steps = [t for t in SHOWN if t <= max(run["steps"] for run in record["runs"])]
    width = max(len("accuracy (%) at T"), *(len(run["name"]) for run in record["runs"]))
    ann_energy = Cost(ann["macs"]).picojoules / 1e6
    lines = [
        f"{record['title']}",
        f"{record['data']['images']:,} {record['data']['split']} images of {record['data']['name']}; "
        f"ANN ({ann['name']}) {100 * ann['accuracy']:.2f} %, {ann['macs'] / 1e6:.2f} million MACs, "
        f"{ann_energy:.2f} µJ an image",
        "",
        f"{'accuracy (%) at T':<{width}}  "
        + "  ".join(f"{t:>5}" for t in steps)
        + " | within 1 point: steps  spikes/neuron  energy (µJ)",
    ]
    for run in record["runs"]:
        cells = "  ".join(f"{100 * run['accuracy'][t - 1]:5.2f}" if t <= run["steps"] else "    -" for t in steps)
        lines.append(f"{run['name']:<{width}}  {cells} | {_arrival(run, ann['accuracy'])}")
    lines += [
        "",
        "Energy: 45 nm, 4.6 pJ a multiply-accumulate, 0.9 pJ an accumulate; the first layer counts as MACs,"
        " every membrane update as an accumulate.",
    ]
    return "\n".join(lines)


def best_lines(record: dict[str, Any]) -> str:
    """Which method won at which T, and at what cost. Differences below two standard errors are called noise."""
    images = record["data"]["images"]
    runs = [run for run in record["runs"] if run.get("images", images) == images]
    lines = ["Best at each T (methods within two standard errors of it are level with it):"] if runs else []
    for t in (t for t in SHOWN if any(t <= run["steps"] for run in runs)):
        there = [run for run in runs if t <= run["steps"]]
        best = max(there, key=lambda run: run["accuracy"][t - 1])
        top = best["accuracy"][t - 1]
        noise = 2.0 * (top * (1.0 - top) / images) ** 0.5
        level = [run["name"] for run in there if run is not best and run["accuracy"][t - 1] >= top - noise]
        energy = Cost(best["input_macs"], sum(best["synaptic_ops"][:t]), best["membrane_updates"] * t).picojoules / 1e6
        also = f"; level: {', '.join(level)}" if level else ""
        lines.append(f"  T = {t:<5} {best['name']}: {100 * top:.2f} %, {energy:.2f} µJ{also}")
    return printable("\n".join(lines))


def engine_lines(run: dict[str, Any]) -> str:
    """How a run was computed, and what early exit would make of it."""
    lines = [f"Engine: {run['engine']}{said_of(run['choices'])}."]
    if exits := run.get("early_exit"):
        lines.append(
            f"Early exit, allowed to lose {100 * exits['allowed_loss']:.2f} points: {100 * exits['accuracy']:.2f} % "
            f"after {exits['mean_steps']:.1f} of {run['steps']} steps on average, {exits['worst_steps']} at worst."
        )
        if (fixed := exits.get("fixed_steps")) is not None:
            lines.append(
                f"A fixed T = {fixed} with the same allowance: {100 * run['accuracy'][fixed - 1]:.2f} %. Both were "
                f"chosen on {exits.get('fitted_on', 'held-out training images')}."
            )
    return "\n".join(lines)


def _arrival(run: dict[str, Any], ann: float) -> str:
    at = steps_to(run["accuracy"], ann - 0.01)
    if at is None:
        return f"{'never':>21}  {'-':>13}  {'-':>11}"
    spikes = sum(run["spikes"][:at]) / run["neurons"]
    cost = Cost(run["input_macs"], sum(run["synaptic_ops"][:at]), run["membrane_updates"] * at)
    return f"{at:>21}  {spikes:>13.2f}  {cost.picojoules / 1e6:>11.2f}"
