"""The data of the paper's figures, each one JSON file (`results/figures/`); `report.save_figure` draws it.

Figures 2 and 3 need no trained network, figure 4 simulates one, figures 6 and 7 are read off the record of one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from paper.headline import race
from paper.networks import Networks
from paper.presets import Preset
from paper.published import HEADLINE, TABLE_2, TABLE_2_STEPS
from paper.results_groups import ann_of
from paper.spiking_runs import K_IMAGES
from paper.toy import rate_norm_response, toy_firing_rates
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import parse
from ratenorm.core.energy import steps_to
from ratenorm.errors import FileFormatError
from ratenorm.io.files import write_atomic
from ratenorm.io.networks import load_network
from ratenorm.io.run_folder import go_on
from ratenorm.workflows import fingerprint
from ratenorm.workflows.calibration import calibration_images
from ratenorm.workflows.environment import hardware, versions
from ratenorm.workflows.evaluate import watched_evaluation
from ratenorm.workflows.record import run_entry, scale_of_runs
from ratenorm.workflows.resume import remembered

FORMAT, VERSION = "ratenorm-figure", 1
SIGNIFICANT_DIGITS = 7
SCALED = 0.8  # the factor of figure 4 (b)
FEW_IMAGES, FEW_STEPS = 100, 256  # of figure 4; the paper looks at one image
LAYERS_SHOWN = 4  # in figure 6 (a), as in the paper
# Pictures of each figure: what is put behind its name.
PICTURES: dict[str, tuple[str, ...]] = {
    "fig2": ("",),
    "fig3": ("",),
    "fig4": ("", "-layers"),
    "fig6": ("a", "b", "c"),
    "fig7": ("a", "b"),
}


# Runs of a network's record that are shown; other runs may still be missing.
RUNS_SHOWN: dict[str, tuple[str, ...]] = {
    "fig4": (),  # it runs the network itself
    "fig6": ("RNL + RIL", "Max Norm", "Robust Norm", "RMP"),  # and RNL, where it is another network
    "fig7": ("RNL + RIL", "Max Norm"),
    "headline": ("RNL + RIL", "Max Norm"),
}


@dataclass(frozen=True)
class Source:
    """A reproduced network that a figure is made of."""

    networks: Networks
    record: dict[str, Any]

    @property
    def preset(self) -> Preset:
        return self.networks.preset

    @property
    def name(self) -> str:
        return f"{self.preset.model} on {self.preset.data}, seed {self.networks.seed}"


Made = tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]  # caption, settings, curves, the paper's figures


def make_figure(name: str, stem: str, source: Source | None, folder: Path) -> Path:
    """Compute the data of a figure and write `folder`/`stem`.json."""
    began = time.monotonic()
    if source is None:
        caption, config, data, paper = _WITHOUT_NETWORK[name]()
    else:
        caption, config, data, paper = _WITH_NETWORK[name](source)
        config |= {"network": source.preset.name, "record": f"{source.networks.label}.json"}
    content = {
        "format": FORMAT,
        "version": VERSION,
        "figure": name,
        "caption": caption,
        "config": config,
        "seed": 0 if source is None else source.networks.seed,
        "versions": versions(),
        "hardware": hardware(),
        "seconds": time.monotonic() - began,
        "scale": "full" if source is None else scale_of_runs(source.record),
        "pictures": [f"{name}{end}{stem.removeprefix(name)}.svg" for end in PICTURES[name]],
        "data": data,
        "paper": paper,
    }
    return write_atomic(folder / f"{stem}.json", (json.dumps(_rounded(content), sort_keys=True) + "\n").encode())


def read_figure(path: Path) -> dict[str, Any]:
    """What `make_figure` wrote."""
    try:
        content = dict(json.loads(path.read_text(encoding="utf-8")))
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise ValueError(f"format {content['format']!r}, version {content['version']!r}")
        if missing := [key for key in ("figure", "caption", "scale", "pictures") if key not in content]:
            raise ValueError(f"{missing[0]!r} is missing")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(
            f"Reading {path}: it is damaged or not a figure of ratenorm ({error}). Make it anew with `python -m paper`."
        ) from error
    return content


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value


def _figure_2() -> Made:
    config: dict[str, Any] = {"p": [1.0, 0.8, 0.6, 0.4], "running_max": 1.0, "points": 141, "steps": 64}
    caption = (
        "Response of the Rate Norm layer: simulated firing rate over activation for thresholds θ = p · maximum. "
        f"Dots: the rate of an integrate-and-fire neuron with that threshold after {config['steps']} steps of the same "
        "current."
    )
    return caption, config, rate_norm_response(**config), {}


def _figure_3() -> Made:
    config: dict[str, Any] = {"sizes": [12, 16, 16, 3], "samplings": 6, "steps": 100, "seed": 6}
    caption = (
        "Firing rates of the output neurons of a toy network under constant and Poisson coding, for "
        f"{config['samplings']} independent samplings of the start potentials, uniform in [0, θ). Dashed: the rates "
        "they converge to."
    )
    return caption, config, toy_firing_rates(**config), {}


def _figure_4(source: Source) -> Made:
    steps = min(FEW_STEPS, source.preset.steps)
    methods = {"Max Norm": "max", f"thresholds x {SCALED:g}": f"scaled:{SCALED:g}:max"}
    networks = source.networks
    model, spec = load_network(networks.relu)
    calibration = networks.scale.calibration
    images = Calibration(calibration_images(networks.data, spec, calibration, networks.seed))
    test = networks.data.test()
    chosen = test.subset(range(min(FEW_IMAGES, len(test))))
    config = {"methods": methods, "images": len(chosen), "steps": steps, "calibration": calibration}

    def run(name: str, text: str) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            method = parse(text)
            net = convert(model, method, example=torch.zeros(1, *spec.input_shape), calibration=images).net
            result = watched_evaluation(name, net, chosen, spec, steps, "auto", batch_size=50, folder=folder)
            return run_entry(name, spec.model, net, method, 0.0, result)

        return remembered(folder, json.dumps([name, text, config, weights, test.name], sort_keys=True), work)

    weights = fingerprint.of_weights(model)
    with go_on(networks.path / "figures") as folder:
        runs = [_slim(run(name, text), source.record["config"]["relu_ann"]) for name, text in methods.items()]
    caption = (
        f"K over time of every layer ({source.name}, ReLU network, {len(chosen)} test images): Max Norm, and its "
        f"thresholds times {SCALED:g}. Dashed: the bound 2Ω/t of Theorem 2, which is exact for the first layer and a "
        "guide behind it."
    )
    return caption, config, {"runs": runs}, {"images": 1, "factor": 0.8}


def _figure_6(source: Source) -> Made:
    ours, *others = RUNS_SHOWN["fig6"]
    with_p = _thresholds(_named(source.record, [ours])[0])
    at_p_one = [run for run in source.record["runs"] if run["name"] == "RNL" and "images" not in run]
    same = any(_thresholds(run) == with_p for run in at_p_one)
    before = [] if same else [run["name"] for run in at_p_one]
    names = [ours, *before, *others]
    runs = [_slim(run, ann_of(source.record, run["name"])) for run in _named(source.record, names)]
    images = source.record["data"]["images"]
    layers = [layer["name"] for layer in runs[0]["layers"]]
    shown = min(LAYERS_SHOWN, len(layers))
    picked = [layers[round(i * (len(layers) - 1) / max(1, shown - 1))] for i in range(shown)]
    paper = {
        method: dict(zip(map(str, TABLE_2_STEPS), row, strict=True))
        for (network, method), row in TABLE_2.items()
        if network == source.preset.model and source.preset.data == "cifar10"
    }
    caption = (
        f"Fast inference ({source.name}, {images:,} test images): (a) K over time of {shown} of {len(layers)} layers, "
        f"on {min(K_IMAGES, images)} of the images, the bound 2Ω/t dashed; (b) accuracy over time; (c) Ω and threshold "
        "of every layer. Dots in (b): from there on a run is within one point of its ANN."
        + (" Stage 2 left p at 1 here: RNL alone is the same network." if same else "")
    )
    config = {"layers": picked, "in_a_and_c": [ours, *before, others[0]], "only_in_c": [others[-1]]}  # RMP, as there
    return caption, config, {"runs": runs}, paper


def _thresholds(run: Mapping[str, Any]) -> list[float]:
    """By which RNL and RNL + RIL differ, and by nothing else."""
    return [layer["threshold"] for layer in run["layers"]]


def _figure_7(source: Source) -> Made:
    record = source.record
    target = 0.9 if source.preset.data == "cifar10" else None
    ours, theirs = _named(record, RUNS_SHOWN["fig7"])
    runs = [_slim(run, ann_of(record, run["name"]), layers=False) for run in (ours, theirs)]
    for run in runs:
        run["target"] = run["ann"]["accuracy"] - 0.01 if target is None else target
    found = race(record, target)
    assert found is not None  # both runs are there
    text = "90 %" if target else "one point below its ANN"
    said = "at least one was not there within the steps simulated"
    if found.ours and found.theirs:
        said = f"{found.ours} against {found.theirs} steps ({found.theirs / found.ours:.2f} times), energy " + (
            "not comparable, for want of spikes" if found.energy is None else f"{found.energy:.3f}"
        )
    caption = (
        f"Energy ({source.name}): (a) power over time, shaded the energy to {text}; RNL + RIL against Max Norm: {said}"
        ". (b) logarithms of the speed-up and of the ratio of energies (p: proposed, RNL + RIL; b: baseline, Max Norm) "
        "to each accuracy above twice chance that both reach and keep. The paper (VGG-16 on CIFAR-10, 90 %): "
        f"{HEADLINE['steps']:.0f} against {HEADLINE['max_norm_steps']:.0f} steps ({HEADLINE['speed_up']} times), "
        f"energy {HEADLINE['energy_ratio']}."
    )
    chance = 1 / len(record["data"]["classes"])
    data = {"runs": runs, "ratio": _log_ratios(ours, theirs, 2 * chance)}
    return caption, {"target": target or "own ANN - 1 point"}, data, dict(HEADLINE)


def _log_ratios(
    ours: dict[str, Any], theirs: dict[str, Any], above: float, levels: int = 200
) -> dict[str, list[float]]:
    """log10 of speed-up and of energy to every accuracy that both runs reach and keep; `above` chance, where accuracy
    comes and goes before any answer is due."""
    found: dict[str, list[float]] = {"accuracy": [], "log10_speed_up": [], "log10_energy": []}
    for level in (i / levels for i in range(1, levels)):
        a, b = steps_to(ours["accuracy"], level), steps_to(theirs["accuracy"], level)
        if level <= above or a is None or b is None or not sum(theirs["spikes"][:b]) or not sum(ours["spikes"][:a]):
            continue
        found["accuracy"].append(level)
        found["log10_speed_up"].append(math.log10(b / a))
        found["log10_energy"].append(math.log10(sum(ours["spikes"][:a]) / sum(theirs["spikes"][:b])))
    return found


def _named(record: dict[str, Any], names: Sequence[str]) -> list[dict[str, Any]]:
    by_name = {run["name"]: run for run in record["runs"]}
    return [by_name[name] for name in names]


def _slim(run: dict[str, Any], ann: float, layers: bool = True) -> dict[str, Any]:
    """What is drawn of a run, and the ANN it was converted from."""
    relu = run["name"] not in ("RNL", "RNL + RIL")
    kept = {key: run[key] for key in ("name", "network", "steps", "neurons", "accuracy", "spikes")}
    kept["ann"] = {"name": f"ANN, {'ReLU' if relu else 'Rate Norm'}", "accuracy": ann, "macs": 0}
    if layers:
        keys = ("name", "neurons", "threshold", "threshold_min", "threshold_max", "omega", "k")
        kept["layers"] = [{key: layer[key] for key in keys} for layer in run["layers"]]
    return kept


_WITHOUT_NETWORK: dict[str, Callable[[], Made]] = {"fig2": _figure_2, "fig3": _figure_3}
_WITH_NETWORK: dict[str, Callable[[Source], Made]] = {"fig4": _figure_4, "fig6": _figure_6, "fig7": _figure_7}
