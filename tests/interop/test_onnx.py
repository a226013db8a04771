"""ONNX files: read, checked against ONNX Runtime, and refused with a reason."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ratenorm as rn
from ratenorm.errors import ConversionError, FileFormatError, UsageError
from ratenorm.interop import extras
from ratenorm.interop.onnx_import import load_onnx
from strangers.architectures import shape_of, stranger

THERE = all(importlib.util.find_spec(name) for name in ("onnx", "onnx2torch", "onnxruntime"))
needs_onnx = pytest.mark.skipif(not THERE, reason="needs onnx, onnx2torch and onnxruntime: make onnx-check runs it")
pytestmark = pytest.mark.filterwarnings("ignore")


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3))


def write(model: nn.Module, path: Path, shape: tuple[int, ...] = (1, 8, 8), any_batch: bool = True) -> Path:
    axes = {"input": {0: "batch"}} if any_batch else None
    torch.onnx.export(
        model.eval(), (torch.rand(2, *shape),), str(path), dynamo=False, opset_version=17, input_names=["input"],
        dynamic_axes=axes, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
    )  # fmt: skip
    return path


@needs_onnx
@pytest.mark.parametrize("name", ["plain", "resnet", "densenet", "mobilenet", "mlp"])
def test_spikes_are_those_of_the_network_it_was_exported_from(name: str, tmp_path: Path) -> None:
    model, x = stranger(name), torch.rand(4, *shape_of(name))
    read = load_onnx(write(model, tmp_path / "n.onnx", shape_of(name)))
    a, b = (rn.simulate(rn.convert(m, "fixed:0.5", example=x[:1]), x, 8) for m in (model, read))
    assert torch.equal(a.logits, b.logits)


@needs_onnx
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    good = write(small(), tmp_path / "good.onnx")
    (tmp_path / "cut.onnx").write_bytes(good.read_bytes()[:500])
    with pytest.raises(FileFormatError, match="not an ONNX file, or it is damaged"):
        load_onnx(tmp_path / "cut.onnx")
    with pytest.raises(ConversionError, match="batch size is fixed to 2"):
        load_onnx(write(small(), tmp_path / "fixed.onnx", any_batch=False))
    with pytest.raises(ConversionError, match="shape of an image"):
        load_onnx(good, shape=(3, 8, 8))
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", 4]) for n in ("x", "y")]
    node = helper.make_node("Shrink", ["x"], ["y"], name="odd_one", lambd=0.5)
    model = helper.make_model(helper.make_graph([node], "g", value[:1], value[1:]))
    onnx.save(model, tmp_path / "odd.onnx")
    with pytest.raises(ConversionError, match=r"Shrink \(odd_one\).*Replace these layers"):
        load_onnx(tmp_path / "odd.onnx")
    two = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", 4]) for n in ("x", "z", "y")]
    node = helper.make_node("Add", ["x", "z"], ["y"])
    onnx.save(helper.make_model(helper.make_graph([node], "g", two[:2], two[2:])), tmp_path / "two.onnx")
    with pytest.raises(ConversionError, match="2 inputs"):
        load_onnx(tmp_path / "two.onnx")


@needs_onnx
def test_weights_beside_the_file_are_read_and_elsewhere_are_not(tmp_path: Path) -> None:
    import onnx

    good = write(small(), tmp_path / "good.onnx")
    folder = tmp_path / "in"
    folder.mkdir()
    settings: dict[str, Any] = {"save_as_external_data": True, "size_threshold": 0, "location": "weights.bin"}
    onnx.save(onnx.load(good), folder / "n.onnx", **settings)
    x = torch.rand(2, 1, 8, 8)
    assert torch.allclose(load_onnx(folder / "n.onnx")(x), load_onnx(good)(x))
    shutil.move(folder / "weights.bin", tmp_path / "weights.bin")
    with pytest.raises(FileFormatError, match="there is no file"):
        load_onnx(folder / "n.onnx")
    (folder / "weights.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(FileFormatError, match="outside the file's folder"):
        load_onnx(folder / "n.onnx")
    model = onnx.load(folder / "n.onnx", load_external_data=False)
    for place in ("../weights.bin", str(tmp_path / "weights.bin"), ""):
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = place
        (folder / "moved.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(FileFormatError, match="outside the file's folder"):
            load_onnx(folder / "moved.onnx")


def test_missing_packages_are_named_with_the_command_that_installs_them(tmp_path: Path, monkeypatch: Any) -> None:
    def gone(name: str) -> None:
        raise ImportError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extras.importlib, "import_module", gone)
    (tmp_path / "n.onnx").write_bytes(b"x")
    with pytest.raises(UsageError, match=r'pip install "ratenorm\[onnx\]"'):
        load_onnx(tmp_path / "n.onnx")
    for package in ("nir", "h5py"):
        with pytest.raises(UsageError, match=r'pip install "ratenorm\[nir\]"'):
            extras.needed(package)
    for package in extras.HOW:
        with pytest.raises(UsageError, match=f"'{package}'"):
            extras.needed(package)


def test_a_missing_file_is_said_before_packages_are_asked_for() -> None:
    with pytest.raises(FileFormatError, match="no such file"):
        load_onnx("nowhere.onnx")
