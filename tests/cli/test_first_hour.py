"""The mistakes of a first hour. Each ends in one paragraph that names the fix, and none in a wrong figure.

`MISTAKES` are command lines; `{name}` stands for a file or folder of the fixture `desk`. A mistake that is refused has
an exit code; one that is told aloud ends well (0) with a WARNING.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from ratenorm.cli.main import main

pytestmark = pytest.mark.usefixtures("small_mnist")

MY_NETS = """
import torch.nn as nn
def small():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 100, 2))
def wide():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 100, 2))
def gelu():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(4 * 100, 2))
"""
FAST = "--epochs 1 --batch-size 10 --lambda 0.05"


def pictures(folder: Path, classes: str = "ab", size: int = 12, count: int = 12, seed: int = 0) -> Path:
    """Pictures whose class is their brightness."""
    generator = torch.Generator().manual_seed(seed)
    for label in classes:
        (folder / label).mkdir(parents=True)
        for i in range(count):
            pixels = torch.randint(0, 120, (size, size), generator=generator).byte() + (120 if label == "b" else 0)
            Image.fromarray(pixels.numpy()).save(folder / label / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, trained_run: Path) -> dict[str, str]:
    """What lies on a newcomer's desk."""
    here = tmp_path_factory.mktemp("desk")
    (here / "my_nets.py").write_text(MY_NETS)
    pictures(here / "pets" / "train")
    pictures(here / "pets" / "test", seed=1)
    pictures(here / "flat")
    pictures(here / "digits28", size=28)
    pictures(here / "strange" / "train")
    pictures(here / "strange" / "test", classes="abc")
    pictures(here / "mixed" / "a", classes="x", size=12)
    pictures(here / "mixed" / "b", classes="x", size=16)
    pictures(here / "sizes", classes="a", size=12)
    pictures(here / "sizes2" / "all", classes="ab", size=12)
    Image.new("L", (20, 12)).save(here / "sizes2" / "all" / "a" / "wide.png")
    pictures(here / "one", classes="a")
    pictures(here / "broken")
    (here / "broken" / "a" / "0.png").write_bytes(b"not a picture")
    pictures(here / "notes")
    (here / "notes" / "a" / "readme.txt").write_text("hello")
    (here / "empty").mkdir()
    (here / "hollow" / "a").mkdir(parents=True)
    (here / "hollow" / "b").mkdir()
    namespace: dict[str, object] = {}
    exec(MY_NETS, namespace)
    torch.manual_seed(0)
    for name in ("small", "wide", "gelu"):
        made = namespace[name]()  # type: ignore[operator]
        assert isinstance(made, nn.Module)
        save_file(made.state_dict(), here / f"{name}.safetensors")
    save_file({"0.weight": torch.zeros(4, 1, 3, 3)}, here / "half.safetensors")
    (here / "weights.pt").write_bytes(b"\x80\x04.")
    (here / "text.safetensors").write_text("hello")
    relu = here / "relu"
    assert main(["train", "--out", str(relu), "--activation", "relu", "--epochs", "1", "--holdout", "40"]) == 0
    net = here / "net.safetensors"
    assert main(["convert", str(trained_run / "stage2.safetensors"), "--out", str(net)]) == 0
    pets = here / "pets.safetensors"
    own = [str(here / "small.safetensors"), "--model", "my_nets:small", "--data", str(here / "pets")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(here))
        assert main(["convert", *own, "--out", str(pets)]) == 0
    flat = here / "flat.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(here))
        own = [str(here / "small.safetensors"), "--model", "my_nets:small", "--data", str(here / "flat")]
        assert main(["convert", *own, "--out", str(flat)]) == 0
    found = {path.stem if path.suffix == ".safetensors" else path.name: str(path) for path in here.iterdir()}
    return found | {
        "here": str(here),
        "net": str(net),
        "petsnet": str(pets),
        "flatnet": str(flat),
        "pets": str(here / "pets"),
        "flat": str(here / "flat"),
        "stage1": str(trained_run / "stage1.safetensors"),
        "reluraw": str(relu / "stage1.safetensors"),
        "run": str(trained_run),
    }


MISTAKES: dict[str, tuple[str, int, str]] = {
    "a misspelt command": ("convrt x", 2, "Did you mean convert"),
    "a misspelt option": ("evaluate {net} --out {new} --step 4", 2, "--steps"),
    "a misspelt network": ("convert vgg16-cifar1 --out {new}", 2, "Did you mean vgg16-cifar10"),
    "a misspelt data set": ("train --data cifar --out {new}", 2, "cifar10"),
    "a misspelt method": ("convert {stage1} --method percentle:99 --out {new}", 2, "percentile"),
    "a misspelt calibrator": ("convert {stage1} --calibrate stepbias --out {new}", 2, "step-bias"),
    "no such file": ("convert nothing.safetensors --out {new}", 1, "there is no such file"),
    "a pickle": ("convert {weights.pt} --out {new}", 2, "save_file(model.state_dict()"),
    "a text file": ("convert {text} --out {new}", 1, "text.safetensors"),
    "weights without their module": ("convert {small} --out {new}", 1, "--model"),
    "weights of another network": ("convert {small} --model my_nets:wide --data {pets} --out {new}", 1, "do not fit"),
    "half of the weights": ("convert {half} --model my_nets:small --data {pets} --out {new}", 1, "do not fit"),
    "a module that is not there": ("convert {small} --model my_net:small --data {pets} --out {new}", 2, "my_net"),
    "own network without its data": ("convert {small} --model my_nets:small --out {new}", 2, "--data"),
    "an activation without spikes": ("convert {gelu} --model my_nets:gelu --data {pets} --out {new}", 1, "adapt"),
    "images of another size": ("convert {small} --model my_nets:small --data {digits28} --out {new}", 1, "28"),
    "a converted network converted again": ("convert {net} --out {new}", 1, "spiking"),
    "an ANN evaluated as spiking": ("evaluate {stage1} --out {new}", 1, "convert"),
    "a used folder": ("evaluate {net} --out {run}", 2, "--overwrite"),
    "resuming nothing": ("evaluate {net} --out {new} --resume", 2, "without --resume"),
    "no steps": ("evaluate {net} --steps 0 --out {new}", 2, "at least 1"),
    "scoring with the training images": ("evaluate {flatnet} --data {flat} --out {new}", 2, "flat/test/CLASS"),
    "an unknown class": ("evaluate {petsnet} --data {strange} --out {new}", 1, "'c' is not among the classes"),
    "pictures of several sizes": ("train --data {sizes2}/all --out {new} " + FAST, 1, "--size"),
    "one class": ("train --data {one} --out {new} " + FAST, 2, "it has one class"),
    "an empty folder": ("train --data {empty} --out {new} " + FAST, 1, "no subfolders"),
    "empty classes": ("train --data {hollow} --out {new} " + FAST, 1, "has no images"),
    "an unreadable picture": ("train --data {broken} --out {new} " + FAST, 1, "0.png"),
    "a text among the pictures": ("train --data {notes} --out {new} " + FAST, 1, "readme.txt"),
    "pictures too small for the network": ("train --data {pets} --out {new} " + FAST, 2, "28 x 28"),
    "more held out than there are": ("train --out {new} --holdout 5000 " + FAST, 1, "a share such as 0.1"),
    "a learning rate that diverges": ("train --out {new} --lr 1000 --epochs 2 --batch-size 32", 0, "that is chance"),
    "a folder of records without one": ("report {empty} -o {new}", 1, "record"),
    "a prediction without a picture": ("predict {net} {here}/none.png", 1, "there is no such file"),
    "a network trained for nothing": ("evaluate {petsnet} --data {pets} --steps 2 --out {new}", 0, "that is chance"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_fix(
    mistake: str,
    desk: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line, code, words = MISTAKES[mistake]
    monkeypatch.syspath_prepend(desk["here"])
    new = tmp_path / "new"
    capsys.readouterr()
    found = main([_filled(word, desk | {"new": str(new)}) for word in line.split()])
    said = capsys.readouterr()
    assert found == code, said.err
    assert "Traceback" not in said.out + said.err
    if code == 0:
        assert f"{words}" in said.out
        return
    assert words in said.err.replace("\n", " ")
    kept = [path.name for path in new.iterdir()] if new.is_dir() else []
    assert "config.json" not in kept or "metrics.jsonl" in kept, "a run that was refused leaves no used folder"


def _filled(word: str, desk: dict[str, str]) -> str:
    for name, value in desk.items():
        word = word.replace("{" + name + "}", value)
    return word


def test_a_class_without_pictures_is_scored_by_name(
    desk: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A test folder that lacks the first class is not scored with shifted labels."""
    pictures(tmp_path / "part" / "test", classes="b")
    pictures(tmp_path / "part" / "train")
    out = tmp_path / "e"
    assert main(["evaluate", desk["petsnet"], "--data", str(tmp_path / "part"), "--steps", "2", "--out", str(out)]) == 0
    record = json.loads((out / "record.json").read_text())
    assert record["data"]["classes"] == ["a", "b"]
    assert record["data"]["images"] == 12
