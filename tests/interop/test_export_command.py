"""`ratenorm export`: what it writes, what it prints, and its exit codes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import ratenorm as rn
from ratenorm.cli.main import main
from ratenorm.convert.convert import Conversion

pytest.importorskip("nir", reason="NIR files need the packages nir and h5py (ratenorm[nir])")


@pytest.fixture
def file(cnn: Conversion, tmp_path: Path) -> Path:
    return rn.save(cnn, tmp_path / "net.safetensors", {"note": "kept"})


def test_there_and_back_gives_the_same_bytes(file: Path, tmp_path: Path, capsys: Any) -> None:
    nir, back = tmp_path / "net.nir", tmp_path / "back.safetensors"
    assert main(["export", str(file), "--out", str(nir), "--chip", "loihi2", "spinnaker2"]) == 0
    printed = capsys.readouterr().out
    assert "What NIR cannot say" in printed
    assert "Estimate for Loihi 2" in printed
    assert "Estimate for SpiNNaker 2" in printed
    assert main(["export", str(nir), "--to", "safetensors", "-o", str(back)]) == 0
    assert back.read_bytes() == file.read_bytes()
    assert main(["export", str(nir), "--to", "tables", "-o", str(tmp_path / "tables")]) == 0
    assert (tmp_path / "tables" / "simulate.py").exists()
    assert "simulate.py images.npy" in capsys.readouterr().out


def test_json_is_for_programs(file: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["export", str(file), "-o", str(tmp_path / "n.nir"), "--chip", "generic", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["written"]["nodes"] > 5
    assert found["fits"][0]["estimate"] is True
    assert found["checks"] == []


def test_wrong_use_is_said_and_nothing_is_written(file: Path, tmp_path: Path, capsys: Any) -> None:
    def refused(words: list[str], code: int, text: str) -> None:
        before = sorted(tmp_path.rglob("*"))
        assert main(["export", *words]) == code
        assert text in capsys.readouterr().err
        assert sorted(tmp_path.rglob("*")) == before

    refused([str(file)], 2, "nothing is asked for")
    refused([str(file), "--chip", "loihi9"], 2, "neither a chip known here")
    refused([str(file), "-o", str(file)], 2, "it is there already")
    refused([str(file), "--reset", "subtract", "--chip", "generic"], 2, "for NIR files of others")
    refused([str(tmp_path / "none.nir"), "--chip", "generic"], 1, "no such file")
    refused([str(tmp_path / "none.safetensors"), "--chip", "generic"], 1, "no such file")
    refused([str(file), "--check", "sinabs", "--images", "0"], 2, "at least 1")
    if importlib.util.find_spec("sinabs") is None:
        refused([str(file), "-o", str(tmp_path / "n.nir"), "--check", "sinabs"], 2, "pip install --no-deps sinabs")
    for pickled in (".pt", ".pth"):
        refused([str(tmp_path / f"x{pickled}"), "--chip", "generic"], 2, "safetensors")


def test_a_network_before_conversion_is_told_to_be_converted(capsys: Any) -> None:
    assert main(["export", "cnn7-mnist", "--chip", "generic"]) == 1
    assert "convert it first" in capsys.readouterr().err
