"""Files without our seal are read by a process of their own, which may hang or die without taking ours along."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ratenorm.convert.convert import Conversion
from ratenorm.errors import FileFormatError
from ratenorm.interop import nir_file
from ratenorm.interop.nir_export import export_nir
from ratenorm.interop.nir_import import import_nir

nir = pytest.importorskip("nir", reason="NIR files need the packages nir and h5py (ratenorm[nir])")


@pytest.fixture
def resaved(cnn: Conversion, tmp_path: Path) -> Path:
    nir.write(tmp_path / "r.nir", nir.read(export_nir(cnn, tmp_path / "n.nir", warn=False).path))
    return tmp_path / "r.nir"


def test_the_reading_process_starts_again_after_it_hung_or_died(
    cnn: Conversion, resaved: Path, monkeypatch: Any
) -> None:
    reader = nir_file._Reader()
    monkeypatch.setattr(nir_file, "_READER", reader)
    assert import_nir(resaved).same_as(cnn.net)
    first = reader.process
    assert first is not None
    assert import_nir(resaved).same_as(cnn.net)
    assert reader.process is first
    first.kill()
    first.wait()
    assert import_nir(resaved).same_as(cnn.net)
    assert reader.process is not first
    sleeping = [sys.executable, "-c", "import sys, time; sys.stdin.readline(); time.sleep(60)"]
    dying = [sys.executable, "-c", "import sys; sys.stdin.readline()"]
    for command, why in ((sleeping, "more than 0.5 seconds"), (dying, "did not survive it")):
        reader.stop()
        original = subprocess.Popen
        monkeypatch.setattr(nir_file.subprocess, "Popen", lambda _, c=command, o=original, **k: o(c, **k))
        monkeypatch.setattr(nir_file, "SECONDS", 0.5 if command is sleeping else 30.0)
        began = time.monotonic()
        with pytest.raises(FileFormatError, match=why):
            import_nir(resaved)
        assert time.monotonic() - began < 30
        monkeypatch.setattr(nir_file.subprocess, "Popen", original)
        monkeypatch.setattr(nir_file, "SECONDS", 60.0)
    assert import_nir(resaved).same_as(cnn.net)
    reader.stop()


def test_the_reading_process_loads_neither_torch_nor_nir() -> None:
    code = (
        "import sys, ratenorm.interop.nir_child as c; print([m for m in ('torch', 'nir', 'numpy') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
