"""The zoo: adding networks, loading them, and what is said when something is wrong."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load as load_tensors

from paper.networks import Networks
from paper.presets import BY_NAME
from paper.scale import Scale
from paper.zoo_entries import add_to_zoo
from paper.zoo_entries import main as add_main
from ratenorm import records
from ratenorm.cli.main import main
from ratenorm.core.rate_norm import rate_norm_layers
from ratenorm.data import ImageSet
from ratenorm.errors import FileFormatError, StorageError, UsageError
from ratenorm.io import zoo
from ratenorm.io.networks import load_network
from ratenorm.workflows.train import test_accuracy as accuracy_of

PRESET = BY_NAME["cnn7-mnist"]
NAME = "cnn7-mnist-s0-short"


@pytest.fixture
def own(tiny_zoo: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(tiny_zoo, tmp_path / "zoo"))


def test_both_networks_of_a_preset_are_stored_as_half_and_come_back(
    tiny_zoo: Path, tiny_results: Path, tiny: Scale
) -> None:
    assert zoo.names(folder=tiny_zoo) == [NAME, f"{NAME}-relu"]
    place = Networks(PRESET, 0, tiny_results / "work", tiny)
    for name, source in ((NAME, place.ril), (f"{NAME}-relu", place.relu)):
        model, spec = zoo.load(name, tiny_zoo)
        original, kept = load_network(source)
        assert spec == kept
        for (key, value), (_, exact) in zip(model.state_dict().items(), original.state_dict().items(), strict=True):
            if exact.is_floating_point() and exact.numel() > 1:
                assert torch.equal(value, exact.half().float()), key
            else:
                assert torch.equal(value, exact), key  # thresholds and p are kept in full
        stored = load_tensors((tiny_zoo / f"{name}.safetensors").read_bytes())
        assert {t.dtype for t in stored.values() if t.numel() > 1} == {torch.float16}


def test_the_index_says_what_the_stored_file_does(tiny_zoo: Path, digits: dict[str, ImageSet]) -> None:
    for name, entry in zoo.entries(tiny_zoo).items():
        data = (tiny_zoo / entry.file).read_bytes()
        assert (entry.bytes, entry.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        model, spec = zoo.load(name, tiny_zoo)
        assert entry.accuracy == accuracy_of(model, spec, digits["test"].subset(range(20)))


def test_the_card_is_made_of_the_file(tiny_zoo: Path) -> None:
    text = (tiny_zoo / f"{NAME}.md").read_text()
    entry = zoo.entries(tiny_zoo)[NAME]
    model, spec = zoo.load(NAME, tiny_zoo)
    assert f"{100 * entry.accuracy:.2f} %" in text
    for wanted in (entry.sha256, f"{entry.bytes:,} bytes", "288 -> 10", "chosen on 50 held-out", "v(0) = 0.5 θ"):
        assert wanted in text
    assert f"{spec.mean[0]:.4f}" in text
    for name, layer in rate_norm_layers(model):
        assert f"| {name} |" in text
        assert f"{float(layer.threshold):.4f} |" in text
    assert "Reduced: trained on 200 images only." in text
    assert "python -m paper cnn7-mnist --seeds 0 --short" in text
    relu = (tiny_zoo / f"{NAME}-relu.md").read_text()
    assert "Thresholds" not in relu
    assert "stage 2" not in relu
    assert "relu, stage1: " in relu


def test_where_a_training_departs_from_the_paper_stands_on_its_card_only(
    tiny_results: Path, tmp_path: Path, tiny: Scale, digits: dict[str, ImageSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ratenorm.workflows.data.load", lambda name, split, root=None: digits[split])
    work = Path(shutil.copytree(tiny_results / "work", tmp_path / "work"))
    config = Networks(PRESET, 0, work, tiny).path / "rnl" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"omega": 1.75}))
    preset = replace(PRESET, note="Narrow", rnl_note="Held where it was")
    add_to_zoo(Networks(preset, 0, work, tiny), tmp_path / "zoo", 0, lambda text: None)
    ours, relu = ((tmp_path / "zoo" / f"{name}.md").read_text() for name in (NAME, f"{NAME}-relu"))
    assert "Narrow. Held where it was." in ours
    assert "start omega 1.75" in ours
    assert "Narrow." in relu
    assert "Held" not in relu
    assert "omega" not in relu


def test_adding_again_changes_nothing(
    tiny_zoo: Path, own: Path, tiny_results: Path, tiny: Scale, small_mnist: None
) -> None:
    add_to_zoo(Networks(PRESET, 0, tiny_results / "work", tiny), own, 4, lambda text: None)
    assert {f.name: f.read_bytes() for f in own.iterdir()} == {f.name: f.read_bytes() for f in tiny_zoo.iterdir()}


def test_seed_0_in_full_has_the_plain_name(tiny_results: Path, tmp_path: Path, small_mnist: None) -> None:
    shutil.copytree(tiny_results / "work" / NAME, tmp_path / "work" / "cnn7-mnist-s0")
    shutil.copytree(tiny_results / "work" / NAME, tmp_path / "work" / "cnn7-mnist-s1")
    for seed in (0, 1):
        add_to_zoo(Networks(PRESET, seed, tmp_path / "work", Scale()), tmp_path / "zoo", 0, lambda text: None)
    known = ["cnn7-mnist", "cnn7-mnist-relu", "cnn7-mnist-s1", "cnn7-mnist-s1-relu"]
    assert zoo.names(folder=tmp_path / "zoo") == known


def test_too_large_a_network_is_refused_before_anything_is_written(
    tiny_results: Path, tiny: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_mnist: None
) -> None:
    monkeypatch.setattr(zoo, "LARGEST", 1000)
    with pytest.raises(StorageError, match="at most 1,000"):
        add_to_zoo(Networks(PRESET, 0, tiny_results / "work", tiny), tmp_path, 0, lambda text: None)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_trained_is_not_added(tmp_path: Path, tiny: Scale) -> None:
    with pytest.raises(UsageError, match="python -m paper cnn7-mnist --seeds 3"):
        add_to_zoo(Networks(PRESET, 3, tmp_path, tiny), tmp_path / "zoo", 0, lambda text: None)


def test_the_relu_network_is_added_as_soon_as_it_is_trained(
    tiny_results: Path, tiny: Scale, tiny_zoo: Path, tmp_path: Path, small_mnist: None
) -> None:
    place = Networks(PRESET, 0, tmp_path / "work", tiny)
    shutil.copytree(Networks(PRESET, 0, tiny_results / "work", tiny).relu.parent, place.relu.parent)
    said: list[str] = []
    add_to_zoo(Networks(PRESET, 0, tmp_path / "work", tiny), tmp_path / "zoo", 4, said.append)
    assert zoo.names(folder=tmp_path / "zoo") == [f"{NAME}-relu"]
    assert "only the ReLU network was added" in said[-1]
    file = f"{NAME}-relu.safetensors"
    assert (tmp_path / "zoo" / file).read_bytes() == (tiny_zoo / file).read_bytes()


def test_an_unknown_name_is_answered_with_the_names_there_are(tiny_zoo: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"'vgg61'.*There are: {NAME}, {NAME}-relu"):
        zoo.load("vgg61", tiny_zoo)
    zoo.write_index(tmp_path, {})
    with pytest.raises(UsageError, match="It is empty"):
        zoo.load("vgg61", tmp_path)


def test_a_missing_or_changed_file_is_refused(own: Path) -> None:
    path = own / f"{NAME}.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=r"sha256.*the index says"):
        zoo.load(NAME, own)
    path.unlink()
    with pytest.raises(FileFormatError, match="cannot be read"):
        zoo.load(NAME, own)


def without(key: str) -> Callable[[dict], None]:
    return lambda index: index["networks"][0].pop(key)


@pytest.mark.parametrize(
    "damage",
    [
        lambda index: index.pop("networks"),
        lambda index: index.update(version=2),
        lambda index: index["networks"].append(3),
        lambda index: index["networks"][0].update(file="../outside.safetensors"),
        lambda index: index["networks"][0].update(bytes="many"),
        lambda index: index["networks"][0].update(accuracy=7),
        *map(without, ("name", "file", "sha256", "bytes", "accuracy", "data")),
    ],
)
def test_a_damaged_index_is_refused(damage: Callable[[dict], None], own: Path) -> None:
    index = json.loads((own / zoo.INDEX).read_text())
    damage(index)
    (own / zoo.INDEX).write_text(json.dumps(index))
    with pytest.raises(FileFormatError, match=r"index\.json is damaged"):
        zoo.names(folder=own)


@pytest.mark.parametrize("content", [b"", b"[", b"[" * 100_000, b"\xff", b"3", b"x" * (2**20 + 1)], ids=range(6))
def test_an_index_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no index"):
        zoo.names(folder=tmp_path)
    (tmp_path / zoo.INDEX).write_bytes(content)
    with pytest.raises(FileFormatError, match="damaged"):
        zoo.names(folder=tmp_path)


def test_the_command(
    tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("paper.zoo_entries.SHORT", tiny)
    folder = ["--folder", str(tmp_path)]
    words = ["cnn7-mnist", "--work", str(tiny_results / "work"), *folder, "--short", "--steps", "2"]
    assert add_main(words) == 0
    assert main(["zoo", "list", *folder]) == 0
    assert f"{NAME}-relu" in capsys.readouterr().out
    assert add_main(["cnn8", *folder]) == 2
    assert "There are: cnn7-mnist" in capsys.readouterr().err
    assert main(["zoo", "list", "cnn7*", *folder]) == 0
    assert f"{NAME}-relu" in capsys.readouterr().out
    assert main(["zoo", "list", "vgg*", *folder]) == 0
    assert "no network whose name matches 'vgg*'" in capsys.readouterr().out
    assert main(["zoo", "add", "cnn7-mnist"]) == 2
    assert "has moved. Use `python -m paper.zoo_entries`" in capsys.readouterr().err


def test_the_networks_of_the_repository_are_whole() -> None:
    """Every listed file is there, small enough, has the bytes that were measured, and a card that says so."""
    folder = zoo.folder()
    known = zoo.entries()
    for name, entry in known.items():
        path = zoo.path_of(name)
        assert path.stat().st_size == entry.bytes <= zoo.LARGEST
        assert entry.sha256 in (folder / f"{name}.md").read_text(encoding="utf-8")
        zoo.load(name) if entry.kind == "network" else zoo.load_spiking(name)
    assert {f.name for f in folder.glob("*.safetensors")} == {entry.file for entry in known.values()}


def test_what_the_record_has_measured_on_these_weights_is_not_simulated_again(
    tiny_zoo: Path, tiny_results: Path, tiny: Scale, tmp_path: Path, small_mnist: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated: list[str] = []

    def forbidden(name: str, *args: object, **options: object) -> None:
        simulated.append(name)
        raise AssertionError("simulated again")

    monkeypatch.setattr("paper.zoo_entries.watched_evaluation", forbidden)
    place = Networks(PRESET, 0, tiny_results / "work", tiny)
    add_to_zoo(place, tmp_path / "zoo", 4, lambda text: None, tiny_results / "results")
    table = [line for line in (tmp_path / "zoo" / f"{NAME}.md").read_text().splitlines() if line.startswith("| v(0)")]
    assert table == [line for line in (tiny_zoo / f"{NAME}.md").read_text().splitlines() if line.startswith("| v(0)")]
    record = records.read(tiny_results / "results" / f"{NAME}.json")
    for change in ({"images": 5, "source_accuracy": 0.5}, {"note": "of other weights"}):
        runs = [{**run, **change} if run["v0"] == 0.5 else run for run in record["runs"]]
        records.write(tmp_path / f"{NAME}.json", {**record, "runs": runs})
        with pytest.raises(AssertionError, match="simulated again"):
            add_to_zoo(place, tmp_path / "zoo", 4, lambda text: None, tmp_path)
    record["config"]["weights"]["ril"] = "of another network"
    records.write(tmp_path / f"{NAME}.json", record)
    with pytest.raises(AssertionError, match="simulated again"):
        add_to_zoo(place, tmp_path / "zoo", 4, lambda text: None, tmp_path)
    assert simulated == ["v(0) = 0.5 θ", "v(0) = 0.5 θ", "v(0) = 0 θ"]
