"""From the trained networks of a preset to entries of the zoo: stored as float16, measured as stored, described.

python -m paper.zoo_entries cnn7-mnist
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch import nn

from paper.from_zoo import write_origin
from paper.model_card import Measured, Origin, card
from paper.networks import Networks, trained_seconds
from paper.presets import named
from paper.scale import SHORT, Scale
from ratenorm import records
from ratenorm.cli.main import run
from ratenorm.convert.convert import convert, with_start
from ratenorm.convert.thresholds import Trained
from ratenorm.core.rate_norm import set_p_
from ratenorm.data import ImageSet
from ratenorm.errors import FileFormatError, StorageError, UsageError
from ratenorm.io import zoo
from ratenorm.io.files import write_atomic
from ratenorm.io.networks import load_network, save_network
from ratenorm.io.run_folder import CONFIG
from ratenorm.workflows import fingerprint
from ratenorm.workflows.choose_lambda import CHOICE_FILE
from ratenorm.workflows.environment import versions
from ratenorm.workflows.evaluate import watched_evaluation
from ratenorm.workflows.train import test_accuracy

STARTS = (0.0, 0.5)  # v(0) in thresholds: the paper's, and the one that rounds


def add_to_zoo(
    networks: Networks, folder: Path, steps: int, say: Callable[[str], None], results: Path | None = None
) -> list[zoo.Entry]:
    """Store the ReLU network and the one with Rate Norm layers of a reproduction, each with its card.

    The ReLU network is stored as soon as it is trained, the other one when it is. Nothing is written before a network
    was measured on the very bytes that will be stored; what its record in `results` has measured on the same weights is
    not simulated again.
    """
    preset, seed, scale = networks.preset, networks.seed, networks.scale
    train = f"`python -m paper {preset.name} --seeds {seed} --work {networks.work}`"
    if not networks.relu.exists():
        raise UsageError(
            f"Adding {preset.name} to the zoo: {networks.relu} is missing, so seed {seed} is not trained yet. Train it "
            f"with {train}."
        )
    chosen = networks.ril.with_name(CHOICE_FILE)
    missing = next((part for part in (networks.rnl, networks.ril, chosen) if not part.exists()), None)
    parts = ("relu", "rnl") if missing is None else ("relu",)
    configs = {part: _read(networks.path / part / CONFIG) for part in parts}
    name = networks.zoo_name
    available = networks.data.test()
    test = available if scale.test_images is None else available.subset(range(scale.test_images))
    command = f"{preset.name} --seed{{}} {seed}{'' if scale.full else ' --short'}"
    store = f"python -m paper.zoo_entries {command.format('')} --steps {steps}"
    commands = [f"python -m paper {command.format('s')}", store]
    plain = Origin({"relu": configs["relu"]}, None, commands, versions(), preset.note)
    stored = []
    if not preset.base:  # otherwise it is that preset's
        relu = _store(networks.zoo_relu, networks.relu, folder, test, plain, 0, None, say)
        write_origin(relu.name, folder, configs["relu"], trained_seconds(networks.relu.parent))
        stored.append(relu)
    if missing is not None:
        added = "only the ReLU network was added" if stored else "nothing was added"
        say(f"{missing} is missing: {added}. Go on with {train}, then add again.")
        return stored
    notes = ". ".join(note for note in (preset.note, preset.rnl_note, preset.seen) if note)
    origin = Origin(configs, _read(chosen), commands, versions(), notes)
    record = None if results is None else results / f"{networks.label}.json"
    ours = _store(name, networks.ril, folder, test, origin, steps, record, say)
    write_origin(name, folder, configs["rnl"], trained_seconds(networks.rnl.parent), origin.choice)
    return [*stored, ours]


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise FileFormatError(f"Adding to the zoo: {path} is damaged ({error}). Train this network anew.") from error


def _store(
    name: str,
    source: Path,
    folder: Path,
    test: ImageSet,
    origin: Origin,
    steps: int,
    record: Path | None,
    say: Callable[[str], None],
) -> zoo.Entry:
    known = zoo.entries(folder) if (folder / zoo.INDEX).exists() else {}
    file = f"{name}.safetensors"
    with tempfile.TemporaryDirectory() as place:
        stored = save_network(Path(place) / file, *load_network(source), half=True)
        data = stored.read_bytes()
        if len(data) > zoo.LARGEST:
            raise StorageError(
                f"Adding {name} to the zoo: it has {len(data):,} bytes as float16, a file of the zoo has at most "
                f"{zoo.LARGEST:,}. Nothing was written. Make the network narrower, or keep it elsewhere."
            )
        measured = _measure(stored, test, steps, record)
    entry = zoo.Entry(name, file, hashlib.sha256(data).hexdigest(), len(data), measured.accuracy, test.name)
    write_atomic(folder / file, data)
    write_atomic(folder / f"{name}.md", card(entry, *load_network(folder / file), measured, origin).encode())
    zoo.write_index(folder, {**known, name: entry})
    say(f"{folder / file}: {len(data) / 1e6:.2f} MB, {100 * measured.accuracy:.2f} % of {len(test):,} test images")
    return entry


def _measure(file: Path, test: ImageSet, steps: int, record: Path | None) -> Measured:
    model, spec = load_network(file)
    found = test_accuracy(model, spec, test)
    if spec.activation != "rate_norm":
        return Measured(len(test), found)
    spiking = _recorded(record, model, len(test)) if steps else {}
    if missing := [v0 for v0 in STARTS if steps and len(spiking.get(v0, ())) < steps]:
        net = convert(model, Trained(), example=torch.zeros(1, *spec.input_shape)).net
        options: dict[str, Any] = {"fit_images": 0, "batch_size": 100}
        for v0 in missing:
            result = watched_evaluation(f"v(0) = {v0:g} θ", with_start(net, v0), test, spec, steps, "auto", **options)
            spiking[v0] = result.accuracy
    spiking = {v0: spiking[v0][:steps] for v0 in STARTS if v0 in spiking}
    set_p_(model, 1.0)
    return Measured(len(test), found, test_accuracy(model, spec, test), spiking)


def _recorded(path: Path | None, model: nn.Module, images: int) -> dict[float, list[float]]:
    """By v(0): accuracies that a record has of these very weights, on all images."""
    if path is None or not path.exists():
        return {}
    try:
        record = records.read(path)
    except FileFormatError:
        return {}  # damaged: measured anew
    weights = record["config"].get("weights")
    known = isinstance(weights, dict) and weights.get("ril") == fingerprint.of_weights(model)
    if not known or record["data"]["images"] != images:
        return {}
    exact = [run for run in record["runs"] if "images" not in run and "note" not in run]
    return {run["v0"]: run["accuracy"] for run in exact if run["name"].partition(",")[0] == "RNL + RIL"}


@dataclass(frozen=True)
class AddToZoo:
    """Store the trained networks of a preset in the zoo, each with its card."""

    preset: Annotated[str, tyro.conf.Positional]
    """name of the preset (see `python -m paper --list`)"""
    seed: int = 0
    """seed of the training"""
    work: Path = Path("runs/reproduce")
    """where `python -m paper` has trained"""
    folder: Path | None = None
    """folder of the zoo (default: the one of this installation)"""
    root: Path | None = None
    """where the data sets lie"""
    steps: int = 64
    """time-steps to measure the spiking network for; 0: only the network before conversion"""
    results: Path = Path("paper/results")
    """where the records of `python -m paper` are; what they have measured is not simulated again"""
    short: bool = False
    """the networks of `python -m paper --short`"""

    def run(self) -> None:
        root, scale = None if self.root is None else str(self.root), SHORT if self.short else Scale()
        networks = Networks(named(self.preset), self.seed, self.work, scale, root)
        add_to_zoo(networks, self.folder or zoo.folder(), self.steps, print, self.results)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return run(lambda: tyro.cli(AddToZoo, prog="python -m paper.zoo_entries", args=arguments))


if __name__ == "__main__":
    sys.exit(main())
