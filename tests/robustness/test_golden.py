"""Golden files: what each version wrote is read as it was meant, for as long as that version is read at all."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from ratenorm import records
from ratenorm.errors import FileFormatError, UsageError
from ratenorm.io import spiking
from ratenorm.io.files import read_tensors, write_tensors
from ratenorm.io.networks import load_network
from ratenorm.io.run_folder import CONFIG, METRICS, RunFolder
from ratenorm.io.spiking import load_with_about, save
from ratenorm.report.terminal import read_progress
from ratenorm.simulate.evaluate import evaluate
from ratenorm.train.checkpoint import read_checkpoint

GOLDEN = Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
import make  # noqa: E402

RUNS = sorted(path.name for path in GOLDEN.glob("run-*"))
FILES = {
    "network-1.safetensors": ("ratenorm-network", load_network),
    "spiking-net-1.safetensors": ("ratenorm-spiking-net", load_with_about),
    "checkpoint-1.safetensors": ("ratenorm-checkpoint", read_checkpoint),
}


def test_network() -> None:
    model, spec = load_network(GOLDEN / "network-1.safetensors")
    expected, expected_spec = make.network()
    assert spec == expected_spec
    for name, value in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], value.half().float() if value.is_floating_point() else value), name


def test_spiking_net() -> None:
    net, about = load_with_about(GOLDEN / "spiking-net-1.safetensors")
    assert net.same_as(make.spiking_net())
    assert about == {"from": "golden"}


def test_checkpoint() -> None:
    found, expected = read_checkpoint(GOLDEN / "checkpoint-1.safetensors"), make.checkpoint()
    assert found.progress == expected.progress
    assert found.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(found.tensors[name], value) for name, value in expected.tensors.items())


def test_there_is_a_golden_record_of_every_version_that_is_read() -> None:
    assert [f"run-{version}" for version in range(records.OLDEST, records.VERSION + 1)] == RUNS
    for run in RUNS:
        assert json.loads((GOLDEN / run / records.FILE_NAME).read_text())["version"] == int(run.removeprefix("run-"))


@pytest.mark.parametrize("run_folder", RUNS)
def test_record_still_holds_what_the_golden_network_does(run_folder: str) -> None:
    found = records.read(GOLDEN / run_folder / records.FILE_NAME)
    run = found["runs"][0]
    images, labels = make.ramp(6, 1, 4, 4, scale=1 / 8), torch.arange(6) % 3
    result = evaluate(make.spiking_net(), [(images, labels)], 4, engine="dense")
    assert run["accuracy"] == pytest.approx(result.accuracy, rel=1e-6)
    assert run["layers"][0]["spikes"] == pytest.approx((result.spikes / 6).tolist(), rel=1e-6)
    assert found["hardware"]["cpu"] == "golden"


@pytest.mark.parametrize("golden", RUNS)
def test_run_folder(golden: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(GOLDEN / golden, run)
    with RunFolder(run, "resume") as folder:
        folder.configure({"model": "cnn7", "data": {"name": "mnist"}, "lr": 0.125})
        with pytest.raises(UsageError, match="differs in lr"):
            folder.configure({"model": "cnn7", "data": {"name": "mnist"}, "lr": 0.25})
    assert [line["loss"] for line in read_progress(run / METRICS).lines] == [0.5]
    assert json.loads((run / CONFIG).read_text())["model"] == "cnn7"


@pytest.mark.parametrize("version", [0, 2, 3, "x"])
@pytest.mark.parametrize("name", FILES)
def test_another_version_says_who_wrote_it(name: str, version: object, tmp_path: Path) -> None:
    kind, read = FILES[name]
    if version == 2 and kind == spiking.FORMAT:
        assert spiking.VERSION == 2  # this one is known
        return
    tensors, content = read_tensors(GOLDEN / name, kind, 1)
    write_tensors(tmp_path / name, tensors, {**content, "version": version, "ratenorm": "9.9.9"})
    with pytest.raises(FileFormatError, match=rf"version {version!r} of the {kind} format.*reads versions? 1.*9\.9\.9"):
        read(tmp_path / name)


@pytest.mark.parametrize(("version", "word"), [(0, "older"), (3, "newer")])
def test_a_record_of_another_version_says_who_wrote_it(version: int, word: str, tmp_path: Path) -> None:
    found = records.read(GOLDEN / "run-1" / records.FILE_NAME)
    (tmp_path / "record.json").write_text(json.dumps({**found, "version": version, "versions": {"ratenorm": "9.9.9"}}))
    with pytest.raises(FileFormatError, match=rf"by ratenorm 9\.9\.9 in the {word} record version {version}"):
        records.read(tmp_path / "record.json")


def test_spiking_nets_of_both_versions_are_equal(tmp_path: Path) -> None:
    """Version 2 packs weights into 16 bits."""
    old, _ = load_with_about(GOLDEN / "spiking-net-1.safetensors")
    new, _ = load_with_about(GOLDEN / "spiking-net-2.safetensors")
    assert new.same_as(old)
    assert load_with_about(save(new, tmp_path / "again.safetensors"))[0].same_as(old)
