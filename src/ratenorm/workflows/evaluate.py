"""Evaluating a spiking network file over a set, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ratenorm import records
from ratenorm.convert.thresholds import from_json
from ratenorm.core.coding import Coding, Constant, Poisson
from ratenorm.data import Batches, ImageSet
from ratenorm.distributed import world
from ratenorm.errors import FileFormatError, UsageError
from ratenorm.graph.net import SpikingNet
from ratenorm.io.networks import NetworkSpec
from ratenorm.io.run_folder import RunFolder
from ratenorm.io.spiking import load_with_about
from ratenorm.simulate.evaluate import Evaluation, Part, evaluate
from ratenorm.simulate.simulate import EngineName
from ratenorm.train.interrupt import Interrupted, Interrupts
from ratenorm.workflows.data import DataConfig, check_not_learned_from, images_to_choose_by
from ratenorm.workflows.early_exit import early_exit_entry
from ratenorm.workflows.fingerprint import of_images
from ratenorm.workflows.loud import warnings_of
from ratenorm.workflows.partial_sums import PartialSums
from ratenorm.workflows.record import ann_entry, make_record, run_entry, scale_of
from ratenorm.workflows.resume import PARTS

HELD_OUT = 1000  # images to fit early exit on


@dataclass(frozen=True)
class EvaluateConfig:
    network: str
    data: DataConfig = field(default_factory=DataConfig)
    split: str = "test"
    steps: int = 64
    images: int | None = None
    batch_size: int = 200
    engine: EngineName = "auto"
    coding: str = "constant"
    seed: int = 0
    fit_images: int = 1000
    early_exit: float | None = None  # points it may lose

    def to_json(self) -> dict[str, Any]:
        """Without what was not asked for: folders of earlier versions go on."""
        own = asdict(self) | {"data": self.data.to_json()}
        return {name: value for name, value in own.items() if name != "early_exit" or value is not None}


def spec_of(about: Mapping[str, Any], path: str) -> NetworkSpec:
    """What the network was fed, kept in its file."""
    try:
        return NetworkSpec.from_json(about["spec"])
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise FileFormatError(
            f"Reading {path}: the file does not say which images the network takes. Evaluate it in Python with "
            "ratenorm.evaluate, or convert it again with `ratenorm convert`."
        ) from error


def calibrations_of(about: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    """What was calibrated or trained after the conversion, kept in the network's file."""
    found = about.get("calibrated", [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise FileFormatError(f"Reading {path}: what it says of its calibration is not a list. Convert it again.")
    return [{**one, "papers": [p for p in one.get("papers", []) if isinstance(p, str)]} for one in found]


def evaluate_file(config: EvaluateConfig, folder: RunFolder) -> dict[str, Any]:
    """Run the whole evaluation; returns the record it wrote."""
    began = time.monotonic()
    _check(config)
    net, about = load_with_about(config.network)
    spec = spec_of(about, config.network)
    method = from_json(about.get("method", {"method": "trained"}))
    v0 = float(about.get("v0", 0.0))
    calibrated = calibrations_of(about, config.network)
    data = config.data.of(spec)
    available = data.train() if config.split == "train" else data.test()
    if config.split == "test":
        check_not_learned_from(about, available, f"Evaluating {config.network}")
    images = available if config.images is None else available.subset(range(min(config.images, len(available))))
    coding = coding_of(config.coding, config.seed, spec)
    result = watched_evaluation(
        spec.model, net, images, spec, config.steps, config.engine, coding, config.fit_images, config.batch_size, folder
    )
    name = "+".join([method.label, *(str(one.get("method")) for one in calibrated)])
    run = run_entry(name, spec.model, net, method, v0, result, coding, calibrated)
    if config.early_exit is not None and world().writer:
        held, what = images_to_choose_by(data.train(), spec.held_out, HELD_OUT, config.seed)
        run["early_exit"] = early_exit_entry(
            net, held, images, spec, config.steps, config.engine, config.early_exit / 100, coding
        )
        run["early_exit"]["fitted_on"] = what
    record = make_record(
        "evaluate",
        f"{spec.model} on {images.name}, {config.steps} steps",
        config.to_json(),
        seed=config.seed,
        seconds=time.monotonic() - began,
        data={"name": images.name, "split": config.split, "images": len(images), "classes": list(images.classes)},
        ann=ann_entry(spec.model, net, result.analog_accuracy, None),
        runs=[run],
        scale=scale_of(len(images), len(available), f"{config.split} images"),
    )
    if lines := warnings_of(record):
        run["note"] = " ".join(lines)
    if world().writer:
        records.write(folder / records.FILE_NAME, record)
    return record


def _check(config: EvaluateConfig) -> None:
    if config.early_exit is None:
        return
    if not 0 <= config.early_exit < 100:
        raise UsageError(
            f"Evaluating: early exit may lose {config.early_exit:g} points; give at least 0 and less than 100, "
            "such as 0.5."
        )
    if config.split == "train":
        raise UsageError(
            "Evaluating: early exit is fitted on training images, so it cannot be judged by them. Use --split test."
        )


def coding_of(name: str, seed: int, spec: NetworkSpec) -> Coding:
    """Poisson coding needs an amplitude that no normalised pixel exceeds."""
    if name == "constant":
        return Constant()
    ends = [abs((pixel - mean) / std) for mean, std in zip(spec.mean, spec.std, strict=True) for pixel in (0.0, 1.0)]
    return Poisson(max(ends), seed)


def parts(batches: Batches, first: int = 0) -> Iterator[Part]:
    """The batches from `first` on, or this process's parts of them, with the place of each in the whole set."""
    for index, (images, labels) in enumerate(batches.epoch(0, first), first):
        start = index * batches.batch_size
        whole = min(batches.batch_size, len(batches.images) - start)
        yield Part(images, labels, start + whole * batches.rank // batches.world_size, start)


def watched_evaluation(
    name: str,
    net: SpikingNet,
    images: ImageSet,
    spec: NetworkSpec,
    steps: int,
    engine: EngineName,
    coding: Coding | None = None,
    fit_images: int = 1000,
    batch_size: int = 500,
    folder: RunFolder | None = None,
    first: int | None = None,
    lasting: Path | None = None,
) -> Evaluation:
    """`evaluate` with a progress bar. In a folder it keeps its sums from time to time and when it is asked to stop, and
    goes on from them. Of the `first` images only, whole batches of them: the sums stay, for all images to go on from.
    Those of all images are kept in `lasting`, where that is given: a place that outlives the folder.
    """
    here = world()
    about: dict[str, Any] = {
        "steps": steps,
        "coding": repr(coding),
        "fit": fit_images,
        "batch": batch_size,
        "engine": engine,
    }
    about |= {"transform": spec.normalisation.to_dict()}
    kept = None
    if folder is not None:
        about["images"] = of_images(images)
        places = [folder.path / PARTS, lasting or folder.path / PARTS]
        place, elsewhere = places if first is not None else places[::-1]
        kept = PartialSums(place, net, about, elsewhere=elsewhere)
    so_far, done = (Evaluation(steps), 0) if kept is None else kept.load(steps)
    batches = Batches(images, batch_size, normalise=spec.normalisation, rank=here.rank, world_size=here.size)
    wanted = -(-(len(images) if first is None else first) // batch_size)  # batches
    if done > wanted:  # on its way to all images, which it shall not lose
        kept, so_far, done = None, Evaluation(steps), 0
    shown = min(wanted * batch_size, len(images))
    bar = tqdm(total=shown, desc=name, unit="image", dynamic_ncols=True, disable=not here.writer)
    with Interrupts() as interrupts, bar:

        def progress(so_far: Evaluation) -> None:
            nonlocal done
            done += 1
            bar.update(min(so_far.images * here.size, shown) - bar.n)
            bar.set_postfix(accuracy=f"{so_far.accuracy[-1]:.4f}", refresh=False)
            if interrupts.received is not None:
                if kept is not None:
                    kept.save(so_far, done)
                raise Interrupted(interrupts.received, _stopped(name, so_far.images, folder, kept))
            if kept is not None and done == wanted and first is not None:
                kept.save(so_far, done)
            elif kept is not None:
                kept.save_if_due(so_far, done)

        options: dict[str, Any] = {"engine": engine, "coding": coding, "fit_images": fit_images, "progress": progress}
        options["neurobench"] = True
        result = evaluate(net, islice(parts(batches, done), wanted - done), steps, so_far=so_far, **options)
    if kept is not None and first is None:
        kept.forget()
    return result


def _stopped(name: str, images: int, folder: RunFolder | None, kept: PartialSums | None) -> str:
    where = "nothing was saved, since no run folder was given"
    if kept is not None:
        where = f"the sums are in {kept.path.parent}"
    elif folder is not None:
        where = "the sums of all images, which are further, stay"
    return f"Evaluating {name} was stopped after {images} images; {where}. Continue with --resume."
