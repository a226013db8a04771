"""Files made to hurt: refused before they cost memory or time, whatever their checksum says."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
import torch

from ratenorm import records
from ratenorm.errors import FileFormatError, StorageError
from ratenorm.io.files import check_writable, read_tensors, write_tensors
from ratenorm.io.networks import NetworkSpec, load_network, save_network
from ratenorm.io.spiking import load, save
from ratenorm.workflows.evaluate import spec_of
from torturing.subjects import small_spiking_net

GOLDEN = Path(__file__).parents[1] / "golden"


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_classes", 10**9),
        ("num_classes", 60_000),
        ("channels", 50_000),
        ("channels", -1),
        ("num_classes", "3"),
        ("num_classes", 3.0),
        ("size", [28]),
        ("size", [10**9, 28]),
        ("mean", []),
        ("mean", [float(0)] * 3),
        ("std", [0.0]),
        ("classes", ["a"]),
        ("classes", [1, 2, 3]),
        ("model", "vgg16"),
        ("model", None),
        ("activation", "exec"),
        ("surprise", 1),
    ],
)
def test_an_absurd_network(field: str, value: Any, tmp_path: Path) -> None:
    tensors, content = read_tensors(GOLDEN / "network-1.safetensors", "ratenorm-network", 1)
    content["spec"][field] = value
    write_tensors(tmp_path / "n.safetensors", tensors, content)
    before = peak()
    with pytest.raises(FileFormatError, match="do not fit the network it names"):
        load_network(tmp_path / "n.safetensors")
    assert peak() - before < 200


def test_a_spec_kept_with_a_spiking_net_is_checked_too() -> None:
    good = NetworkSpec("cnn7", channels=1, size=(28, 28), mean=(0.5,), std=(0.5,)).to_json()
    assert spec_of({"spec": good}, "x").model == "cnn7"
    for about in ({}, {"spec": None}, {"spec": {**good, "channels": 10**9}}, {"spec": {**good, "std": [0.0]}}):
        with pytest.raises(FileFormatError, match="does not say which images"):
            spec_of(about, "x")


def forged_net(tmp_path: Path, **changes: Any) -> Path:
    """The small net with nodes' settings changed (`node__setting`), or the whole's."""
    file = save(small_spiking_net(), tmp_path / "net.safetensors")
    tensors, content = read_tensors(file, "ratenorm-spiking-net", 1)
    for key, value in changes.items():
        name, _, setting = key.partition("__")
        if setting == "tensor":
            tensors[name] = value
        elif setting:
            next(n for n in content["nodes"] if n["name"] == name)["settings"][setting] = value
        else:
            content[key] = value
    return write_tensors(file, tensors, content)


@pytest.mark.parametrize(
    "changes",
    [
        {"input_shape": [1, 10**6, 10**6]},
        {"input_shape": [1, 2**13, 2**13 + 1]},
        {"input_shape": [1, 10**18, 10**18]},
        {"input_shape": [1, 0, 8]},
        {"input_shape": "888"},
        {"0__padding": [10**6, 10**6, 10**6, 10**6]},
        {"0__padding": [2**40, 2**40, 2**40, 2**40]},
        {"0__stride": [0, 0]},
        {"0__groups": 0},
        {"0__padding_mode": "exec"},
        {"2__kernel": [0, 0]},
        {"2__stride": [0, 0]},
        {"5.unscaled__kernel": [10**9, 10**9]},
        {"6__shape": [2**62]},
        {"6__shape": [2]},
        {"output": "2"},
        {"output": None},
        {"nodes": []},
        {"1//start__tensor": torch.zeros(5)},
        {"1//threshold__tensor": torch.ones(3, 1, 1, 1, 1)},
        {"0//weight__tensor": torch.zeros(0, 1, 3, 3)},
    ],
    ids=lambda changes: next(f"{k} {v}"[:40] for k, v in changes.items()),
)
def test_an_absurd_spiking_net(changes: dict[str, Any], tmp_path: Path) -> None:
    if changes == {"output": "2"}:
        load(forged_net(tmp_path, **changes))  # unusual, but a network
        return
    file = forged_net(tmp_path, **changes)
    before = peak()
    with pytest.raises(FileFormatError, match="do not make a spiking network"):
        load(file)
    assert peak() - before < 200


def test_too_much_work_and_mixed_images_are_refused(tmp_path: Path) -> None:
    def built(op: dict[str, Any], tensors: dict[str, torch.Tensor], shape: list[int]) -> Path:
        nodes = [
            {"name": "input", "kind": "input", "inputs": [], "settings": {}},
            {"name": "a", "inputs": ["input"], **op},
        ]
        content = {"format": "ratenorm-spiking-net", "version": 1, "nodes": nodes, "output": "a", "input_shape": shape}
        return write_tensors(tmp_path / "a.safetensors", tensors, content)

    square = {"stride": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1}
    cases = [
        ({"kind": "conv", "settings": square}, {"a//weight": torch.zeros(16, 16, 64, 64)}, [16, 1000, 1000]),
        ({"kind": "upsample", "settings": {"size": [10**5, 10**5]}}, {}, [1, 8, 8]),
        ({"kind": "adaptive_avg_pool", "settings": {"size": [5000, 1]}}, {}, [1, 8, 8]),
        ({"kind": "slice", "settings": {"dim": 0, "start": 0, "stop": 1}}, {}, [1, 8, 8]),
        ({"kind": "permute", "settings": {"dims": [1, 0, 2, 3]}}, {}, [1, 8, 8]),
        ({"kind": "activation", "settings": {}}, {}, [1, 8, 8]),
    ]
    for op, tensors, shape in cases:
        with pytest.raises(FileFormatError, match="do not make a spiking network"):
            load(built(op, tensors, shape))


@pytest.mark.parametrize("number", ["1" + "0" * 400, "9223372036854775808", "-1e999", "NaN"])
def test_numbers_that_no_record_holds(number: str, tmp_path: Path) -> None:
    text = (GOLDEN / "run-1" / "record.json").read_text()
    (tmp_path / "record.json").write_text(text.replace('"seed":0', f'"seed":{number}'))
    with pytest.raises(FileFormatError, match="damaged"):
        records.read(tmp_path / "record.json")
    assert json.loads(text)["seed"] == 0


def test_what_cannot_be_written_is_found_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="it is a folder"):
        check_writable(tmp_path)
    with pytest.raises(StorageError, match="folder that can be written"):
        check_writable(tmp_path / "file" / "below.safetensors")
    check_writable(tmp_path / "new" / "net.safetensors")
    assert list((tmp_path / "new").iterdir()) == []


def test_float16_networks_still_load(tmp_path: Path) -> None:
    spec = NetworkSpec("cnn7", channels=1, size=(28, 28), mean=(0.5,), std=(0.5,))
    save_network(tmp_path / "n.safetensors", spec.build(), spec, half=True)
    assert load_network(tmp_path / "n.safetensors")[1] == spec
