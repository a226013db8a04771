"""`ratenorm doctor`: is this installation sound, and what to mend."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import MaxNorm
from ratenorm.data import data_root, verify
from ratenorm.errors import RatenormError
from ratenorm.io.spiking import load, save
from ratenorm.simulate.event import available
from ratenorm.simulate.simulate import simulate
from ratenorm.workflows.environment import hardware, versions

State = Literal["ok", "note", "bad"]
ENOUGH_FREE_GB = 2.0


@dataclass(frozen=True)
class Check:
    """One thing looked at: a note is worth knowing, bad must be mended."""

    name: str
    state: State
    detail: str
    fix: str = ""

    def __str__(self) -> str:
        mark = {"ok": "ok  ", "note": "note", "bad": "BAD "}[self.state]
        return f"{mark}  {self.name}: {self.detail}" + (f"\n      fix: {self.fix}" if self.fix else "")


def examine(root: str | None = None) -> list[Check]:
    """Every check, in order; one that fails never keeps the next from running."""
    looks: list[tuple[str, Callable[[], Check]]] = [
        ("installation", _installation),
        ("hardware", _hardware),
        ("embedded MNIST", lambda: _data_set("mnist", root)),
        ("CIFAR-10", lambda: _data_set("cifar10", root)),
        ("CIFAR-100", lambda: _data_set("cifar100", root)),
        ("data folder", lambda: _folder(data_root(root))),
        ("files", _files),
        ("engines", _engines),
    ]
    found: list[Check] = []
    for name, look in looks:
        try:
            found.append(look())
        except Exception as error:  # whatever is broken here must be told, not raised
            found.append(Check(name, "bad", f"{type(error).__name__}: {error}", "install ratenorm again"))
    return found


def _installation() -> Check:
    return Check("installation", "ok", ", ".join(f"{k} {v}" for k, v in versions().items()))


def _hardware() -> Check:
    machine = hardware()
    detail = f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, {machine['memory_gb']} GB"
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return Check("hardware", "ok", f"{detail}, {gpus} GPUs")


def _data_set(name: str, root: str | None) -> Check:
    try:
        status = verify(name, root if name != "mnist" else None)
    except RatenormError as error:
        return Check(name, "bad", str(error), f"ratenorm data get {name}")
    if status.complete:
        return Check(name, "ok", f"complete in {status.folder}")
    states = {file.state for file in status.files}
    missing = states <= {"missing"}
    return Check(
        name,
        "note" if missing else "bad",
        f"{'not there' if missing else 'damaged or incomplete'} ({status.folder})",
        f"ratenorm data get {name}",
    )


def _folder(folder: Path) -> Check:
    place = folder
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    if free < ENOUGH_FREE_GB:
        return Check("data folder", "note", f"{folder}: only {free:.1f} GB free", "make room, or set RATENORM_DATA")
    return Check("data folder", "ok", f"{folder}: {free:.0f} GB free")


def _tiny() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 3)]
    return nn.Sequential(*layers).eval(), torch.rand(3, 1, 8, 8)


def _files() -> Check:
    model, images = _tiny()
    net = convert(model, MaxNorm(), example=images[:1], calibration=images).net
    with tempfile.TemporaryDirectory() as folder:
        same = load(save(net, Path(folder) / "net.safetensors")).same_as(net)
    if same:
        return Check("files", "ok", "a network was saved and loaded back equal")
    return Check("files", "bad", "a network was loaded back different", "check the disk and its memory")


def _engines() -> Check:
    """The event engine against the dense one, spike for spike: `convert` puts weights where both are exact."""
    if (missing := available.missing()) is not None:
        return Check(
            "engines", "note", f"only the dense engine runs here: the event engine's {missing}", available.CURE
        )
    model, images = _tiny()
    net = convert(model, MaxNorm(), example=images[:1], calibration=images).net
    dense, event = (simulate(net, images, 32, engine=name) for name in ("dense", "event"))  # type: ignore[arg-type]
    if not all(torch.equal(dense.spikes[name], event.spikes[name]) for name in dense.spikes):
        return Check("engines", "bad", "event and dense engine differ", "install ratenorm again, and report it")
    sets = available.instruction_sets()
    return Check("engines", "ok", f"event and dense engine agree spike for spike; the event engine runs on {sets[0]}")
