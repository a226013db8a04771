"""`python -m paper`: train what is missing, resume what was cut, evaluate, and write one record a network
and seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paper.networks import Networks, Say
from paper.published import numbers_for
from paper.spiking_runs import Bench, RunKey, Which, jobs, simulate_all
from ratenorm import records
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.errors import FileFormatError
from ratenorm.io.files import sweep, sweep_of
from ratenorm.io.networks import load_network
from ratenorm.io.run_folder import RunFolder, go_on
from ratenorm.workflows import fingerprint
from ratenorm.workflows.calibration import calibration_images
from ratenorm.workflows.record import ann_entry, make_record, scale_of, scale_of_part
from ratenorm.workflows.train import at_p_one, test_accuracy

UNFINISHED = "unfinished"  # folder beside the records: sums of runs that are not through all images yet


def reproduce(networks: Networks, results: Path, say: Say, whole: Collection[str] | None = None) -> dict[str, Any]:
    """One network and seed, from training to its record in `results`. Interrupted anywhere it goes on where it was.
    Methods run on the first test images, then those named in `whole` (None: all) on the rest."""
    preset, seed = networks.preset, networks.seed
    say(f"{preset.name}, seed {seed}: {networks.scale}; work in {networks.path}")
    choice = networks.train(say)
    found: dict[str, Any] = {"choice": choice, "paper": numbers_for(preset.data, preset.model) or None}
    trained = networks.seconds
    path, record = results / f"{networks.label}.json", {}

    def keep(head: dict[str, Any], runs: list[dict[str, Any]], todo: int) -> None:
        """What is done can be looked at already; it says that it is not all."""
        everything = head["data"]["images"]
        part = {"scale": scale_of_part(runs, todo, head["scale"])}
        seconds = sum(trained.values()) + sum(
            run.get("images", everything) / (run["images_per_second"] or math.inf) for run in runs
        )
        record.update(make_record(**{**head, **part}, runs=runs, seconds=seconds, **found))
        record["config"]["training_seconds"] = trained
        records.write(path, record)

    with go_on(networks.path / "spiking") as folder:
        sweep_of(path)  # whoever holds this folder is the only one to write that record, and the sums beside it
        sweep(results / UNFINISHED / networks.label)
        folder.configure({"preset": preset.name, "seed": seed, "scale": str(networks.scale)})
        _simulate(networks, folder, path, keep, whole)
    return record


def _simulate(
    networks: Networks,
    folder: RunFolder,
    path: Path,
    keep: Callable[[dict[str, Any], list[dict[str, Any]], int], None],
    whole: Collection[str] | None,
) -> None:
    preset, seed, scale = networks.preset, networks.seed, networks.scale
    relu, spec = load_network(networks.relu)
    ours, _ = load_network(networks.ril)
    stage1 = at_p_one(networks.ril)
    models: dict[Which, nn.Module] = {"relu": relu, "rnl": stage1, "ril": ours}
    available = networks.data.test()
    test = available if scale.test_images is None else available.subset(range(scale.test_images))
    images = Calibration(calibration_images(networks.data, spec, scale.calibration, seed))
    graph, _ = lower(stage1, torch.zeros(1, *spec.input_shape))
    right = {"relu": test_accuracy(relu, spec, test), "rnl": test_accuracy(stage1, spec, test)}
    weights = {which: fingerprint.of_weights(model) for which, model in models.items()}
    head = {
        "kind": "reproduce",
        "title": f"{preset.model} on {preset.data}, seed {seed} ({preset.where})",
        "config": {"preset": preset.to_json(), "weights": weights, "relu_ann": right["relu"], "rnl_ann": right["rnl"]},
        "seed": seed,
        "data": {"name": test.name, "split": "test", "images": len(test), "classes": list(test.classes)},
        "ann": ann_entry(preset.model, fold(graph), right["rnl"], None),
        "scale": str(scale) if not scale.full else scale_of(len(test), len(available), "test images"),
    }
    lasting = path.parent / UNFINISHED / networks.label
    relus = path.with_name(f"{networks.of_base.label}.json")  # whose baselines start from the same ReLU network
    known = {key: run for file in (relus, path) for key, run in _known(file, len(test), preset.steps).items()}
    bench = Bench(models, spec, test, images, folder, lasting, known, right)
    simulate_all(bench, preset.steps, partial(keep, head), whole)


def _known(path: Path, images: int, steps: int) -> dict[RunKey, dict[str, Any]]:
    """The runs of an earlier record: it lives longer than the folder it was made in. They say which machine they were
    made on, since the record will be written anew on this one."""
    if not path.exists():
        return {}
    try:
        record = records.read(path)
    except FileFormatError:
        return {}  # damaged: it will be written anew
    weights = record["config"].get("weights")
    if not isinstance(weights, dict) or record["data"]["images"] != images:
        return {}
    runs = {run["name"]: {"hardware": record["hardware"], **run} for run in record["runs"]}
    same = [job for job in jobs(steps) if job.name in runs and runs[job.name]["steps"] == job.steps]
    found = [(job, runs[job.name]) for job in same]
    return {
        (job.method, job.v0, job.steps, str(weights.get(job.network)), run.get("images", images)): run
        for job, run in found
    }
