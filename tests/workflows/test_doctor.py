"""The doctor: a sound installation passes, and what is broken is named with its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ratenorm.cli.main import main
from ratenorm.workflows import doctor


def states(checks: list[doctor.Check]) -> dict[str, str]:
    return {check.name: check.state for check in checks}


def test_a_sound_installation(tmp_path: Path) -> None:
    found = states(doctor.examine(str(tmp_path)))
    assert found["installation"] == found["files"] == found["engines"] == found["mnist"] == "ok"
    assert found["cifar10"] == "note"  # not there: worth knowing, nothing to mend


def test_a_damaged_data_set_is_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "data_batch_1.bin").write_bytes(b"short")
    assert main(["doctor", "--root", str(tmp_path)]) == 1
    out = capsys.readouterr()
    assert "BAD   cifar10" in out.out
    assert "ratenorm data get cifar10" in out.out
    assert "cifar10" in out.err


def test_engines_that_differ_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.simulate

    def wrong(net, images, steps, engine):  # type: ignore[no-untyped-def]
        result = real(net, images, steps, engine=engine)
        if engine == "event":
            for counts in result.spikes.values():
                counts += 1
        return result

    monkeypatch.setattr(doctor, "simulate", wrong)
    assert states(doctor.examine())["engines"] == "bad"


def test_a_missing_core_is_noted_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.available, "missing", lambda: "compiled core is not installed (ImportError: no)")
    found = next(check for check in doctor.examine() if check.name == "engines")
    assert found.state == "note"
    assert "only the dense engine runs here" in found.detail
    assert "C++20 compiler" in found.fix


def test_a_file_that_comes_back_different_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "load", lambda path: __import__("ratenorm").load(path).map_tensors(torch.zeros_like))
    assert states(doctor.examine())["files"] == "bad"


def test_one_check_that_breaks_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "hardware", lambda: 1 / 0)
    found = states(doctor.examine())
    assert found["hardware"] == "bad"
    assert found["engines"] == "ok"
