"""lambda of stage 2, chosen on held-out training images by a written rule.

Every candidate trains its own p', becomes a spiking network with v(0) = 0 and answers images that no stage has learned
from. One more needs no training: lambda = 0, whose optimum is p = 1, the network as stage 1 left it. Stage 2 has to do
better than that, which it may not where the weights have learned the Rate Inference Loss already.

What was tried, and how each did, goes into the record; the test images are not looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import Trained
from ratenorm.core.rate_norm import rate_norm_layers
from ratenorm.data import ImageSet
from ratenorm.errors import AccuracyWarning
from ratenorm.io.files import read_small, to_json, write_atomic
from ratenorm.io.networks import load_network, save_network
from ratenorm.io.run_folder import CONFIG_LIMIT, RunFolder, go_on
from ratenorm.train.choice import LONGEST_REACH, Rule
from ratenorm.train.config import Stage2
from ratenorm.train.stage2 import train_latency
from ratenorm.workflows.evaluate import watched_evaluation
from ratenorm.workflows.resume import remembered
from ratenorm.workflows.train import (
    STAGE2_FILE,
    TrainConfig,
    held_out_images,
    test_accuracy,
    training_images,
)

CHOICE_FILE = "choice.json"


def choose_stage2(
    stage1: Path,
    training: TrainConfig,
    candidates: Sequence[Stage2],
    place: Path,
    rule: Rule,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Train and try all, and leave the winner in `place`, network and choice; returns the `choice` entry of a record.
    What was done before in `place` is not done again.
    """
    as_it_is = replace(candidates[0], lam=0.0, per_layer=False)
    with go_on(place) as folder:
        folder.configure({"network": hashlib.sha256(stage1.read_bytes()).hexdigest()})
        if (made := _made(folder, candidates, rule)) is not None:
            return made
        images = held_out_images(training, rule.images)
        ann = test_accuracy(*load_network(stage1), images)
        trials = _Trials(stage1, training, images, ann, rule, folder)
        for candidate in [*candidates, as_it_is]:
            trials.look_at(candidate)
        trials.simulate()
        for _ in range(LONGEST_REACH):
            if (lam := rule.beyond(ann, trials.tried)) is None:
                break
            trials.look_at(replace(candidates[0], lam=lam, per_layer=trials.tried[trials.winner]["per_layer"]))
            trials.simulate()
        best, tried = trials.winner, trials.tried
        for found in tried:
            say(_line(found, ann, rule))
        choice = {"rule": str(rule), "images": len(images), "ann_accuracy": ann, "tried": tried, "chosen": best}
        write_atomic(folder / CHOICE_FILE, (to_json(choice) + "\n").encode())
        write_atomic(folder / STAGE2_FILE, trials.files[best].read_bytes())
    say(f"  chosen on {len(images):,} held-out images: {label(tried[best])}")
    return choice


def _made(folder: RunFolder, candidates: Sequence[Stage2], rule: Rule) -> dict[str, Any] | None:
    """The choice that was made here before by this rule among these candidates, if there is one."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # none, or not a sound one: chosen anew
        choice: dict[str, Any] = json.loads(read_small(folder / CHOICE_FILE, CONFIG_LIMIT).decode("utf-8"))
        tried = {(one["lam"], one["per_layer"]) for one in choice["tried"]}
        same = choice["rule"] == str(rule) and all((c.lam, c.per_layer) in tried for c in candidates)
        if same and (folder / STAGE2_FILE).exists():
            return choice
    return None


@dataclass
class _Trials:
    """The candidates, how far each has been tried."""

    stage1: Path
    training: TrainConfig
    images: ImageSet
    ann: float
    rule: Rule
    folder: RunFolder
    candidates: list[Stage2] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    tried: list[dict[str, Any]] = field(default_factory=list)

    @property
    def winner(self) -> int:
        return self.rule.winner(self.ann, self.tried)

    def look_at(self, stage2: Stage2) -> None:
        """Train a candidate's p, and see what its thresholds leave of the accuracy: no simulation yet."""
        own = self.folder / _slug(stage2)
        file = _train(self.stage1, self.training, stage2, own) if stage2.lam else self.stage1
        model, spec = load_network(file)
        p = [float(layer.p) for _, layer in rate_norm_layers(model)]
        entry = {"lam": stage2.lam, "per_layer": stage2.per_layer, "p": p, "accuracy": None}
        self.tried.append({**entry, "clipped": test_accuracy(model, spec, self.images)})
        self.candidates.append(stage2)
        self.files.append(file)

    def simulate(self) -> None:
        """Those whose thresholds cut off nothing; the others only where none of these arrives, for they cannot win."""
        self._simulate(lambda found: self.rule.whole(self.ann, found))
        if all(self.rule.arrival(self.ann, found["accuracy"] or []) is None for found in self.tried):
            self._simulate(lambda found: not self.rule.hopeless(self.ann, found["clipped"]))

    def _simulate(self, worth_it: Callable[[Mapping[str, Any]], bool]) -> None:
        for at, stage2 in enumerate(self.candidates):
            if self.tried[at]["accuracy"] is None and worth_it(self.tried[at]):
                name = {"stage2": stage2.to_json(), "images": len(self.images), "steps": self.rule.steps}
                self.tried[at] = remembered(self.folder, to_json(name), partial(self._simulated, at))

    def _simulated(self, at: int) -> dict[str, Any]:
        model, spec = load_network(self.files[at])
        net = convert(model, Trained(), example=torch.zeros(1, *spec.input_shape)).net
        options: dict[str, Any] = {"fit_images": 0, "batch_size": 100, "folder": self.folder}
        name = f"held-out, {_slug(self.candidates[at])}"
        result = watched_evaluation(name, net, self.images, spec, self.rule.steps, "auto", **options)
        return {**self.tried[at], "accuracy": result.accuracy}


def label(candidate: Mapping[str, Any]) -> str:
    """A candidate in words."""
    if candidate["lam"] == 0.0:
        return "p = 1, without stage 2"
    return f"λ = {candidate['lam']:g}" + (", p' for each layer" if candidate["per_layer"] else "")


def _slug(stage2: Stage2) -> str:
    return f"lam-{stage2.lam:g}" + ("-per-layer" if stage2.per_layer else "")


def _train(stage1: Path, training: TrainConfig, stage2: Stage2, path: Path) -> Path:
    file = path / STAGE2_FILE
    with go_on(path) as folder:
        folder.configure({"stage2": stage2.to_json()})
        if not file.exists():
            model, spec = load_network(stage1)
            with warnings.catch_warnings():  # what a candidate loses is what the choice is about
                warnings.simplefilter("ignore", AccuracyWarning)
                train_latency(model, training_images(training), stage2, normalise=spec.normalisation, run=folder)
            save_network(file, model, spec, half=training.half)
    return file


def _line(tried: Mapping[str, Any], ann: float, rule: Rule) -> str:
    p, accuracy = tried["p"], tried["accuracy"]
    start = f"  {label(tried)}: mean p = {sum(p) / len(p):.3f}"
    if accuracy is None:
        return f"{start}, cuts off {100 * (ann - tried['clipped']):.2f} points: not simulated"
    arrived = rule.arrival(ann, accuracy)
    when = "never" if arrived is None else f"after {arrived} steps"
    return f"{start}, within 1 point {when}, {100 * (ann - accuracy[-1]):+.2f} points lost at T = {rule.steps}"
