"""Files: never half written, never silently wrong."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save as save_safetensors

from ratenorm.errors import FileFormatError, RatenormError
from ratenorm.io.files import read_tensors, sweep, sweep_of, to_json, write_atomic, write_tensors
from ratenorm.io.packing import packed, unpacked

TENSORS = {
    "weight": torch.arange(6.0).reshape(2, 3),
    "half": torch.tensor([1.5, -2.0]).half(),
    "count": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "nothing": torch.zeros(0, 3),
}
CONTENT = {"format": "kind", "version": 3, "ratenorm": "0.0", "text": "θ", "list": [1, None, 2.5]}


def test_tensors_come_back_equal(tmp_path: Path) -> None:
    path = write_tensors(tmp_path / "deep" / "file.safetensors", TENSORS, CONTENT)
    tensors, content = read_tensors(path, "kind", 3)
    assert content == CONTENT
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_equal_contents_give_equal_bytes(tmp_path: Path) -> None:
    backwards = dict(reversed(CONTENT.items()))
    one = write_tensors(tmp_path / "one", TENSORS, CONTENT).read_bytes()
    assert write_tensors(tmp_path / "two", TENSORS, backwards).read_bytes() == one


def test_tensors_that_share_memory_are_written_in_full(tmp_path: Path) -> None:
    shared = torch.arange(4.0)
    path = write_tensors(tmp_path / "file", {"a": shared, "b": shared[:2], "c": shared.view(2, 2).t()}, CONTENT)
    tensors, _ = read_tensors(path, "kind", 3)
    assert tensors["b"].tolist() == [0.0, 1.0]
    assert tensors["c"].tolist() == [[0.0, 2.0], [1.0, 3.0]]


def good_bytes() -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        return write_tensors(Path(folder) / "file", TENSORS, CONTENT).read_bytes()


GOOD = good_bytes()


@settings(max_examples=150)
@given(st.data())
def test_any_damage_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever is done to the bytes, the answer is the old content or FileFormatError, and nothing else."""
    bad = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        action = data.draw(st.sampled_from(["flip", "cut", "insert", "zero"]))
        at = data.draw(st.integers(0, max(0, len(bad) - 1)))
        if action == "flip" and bad:
            bad[at] ^= 1 << data.draw(st.integers(0, 7))
        elif action == "cut":
            del bad[at:]
        elif action == "insert":
            bad[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        else:
            bad[at : at + 8] = bytes(len(bad[at : at + 8]))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(bytes(bad))
    try:
        tensors, content = read_tensors(path, "kind", 3)
    except FileFormatError as error:
        assert str(path) in str(error)  # noqa: PT017
    else:
        assert content == CONTENT
        assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 40, len(GOOD) - 1])
def test_a_file_cut_short_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "short"
    path.write_bytes(GOOD[:length])
    with pytest.raises(FileFormatError, match=r"damaged|not a kind file"):
        read_tensors(path, "kind", 3)


def test_one_changed_value_breaks_the_checksum(tmp_path: Path) -> None:
    path = tmp_path / "file"
    at = GOOD.rindex(torch.arange(6.0).numpy().tobytes()[8:])
    path.write_bytes(GOOD[:at] + b"\x01" + GOOD[at + 1 :])
    with pytest.raises(FileFormatError, match="checksum"):
        read_tensors(path, "kind", 3)


def test_another_kind_and_another_version_are_named(tmp_path: Path) -> None:
    path = write_tensors(tmp_path / "file", TENSORS, CONTENT)
    with pytest.raises(FileFormatError, match="holds 'kind', 'other' was expected"):
        read_tensors(path, "other", 3)
    with pytest.raises(FileFormatError, match=r"version 3 of the kind format.*reads version 4.*wrote it \(0\.0\)"):
        read_tensors(path, "kind", 4)


@pytest.mark.parametrize(
    "metadata",
    [None, {}, {"ratenorm": "no json"}, {"ratenorm": "[]"}, {"ratenorm": '{"content": "[1]", "sha256": ""}'},
     {"ratenorm": '{"content": 3, "sha256": ""}'}, {"ratenorm": '{"content": "{}"}'},
     {"ratenorm": json.dumps({"content": "[" * 100_000, "sha256": ""})}],
    ids=["none", "empty", "text", "list", "content is a list", "content is a number", "no checksum", "nested"],
)  # fmt: skip
def test_a_foreign_safetensors_file_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(save_safetensors(TENSORS, metadata))
    with pytest.raises(FileFormatError, match="not a kind file"):
        read_tensors(path, "kind", 3)


def test_what_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no such file"):
        read_tensors(tmp_path / "missing", "kind", 3)
    with pytest.raises(FileFormatError, match="directory"):
        read_tensors(tmp_path, "kind", 3)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tensors(tmp_path / "file", TENSORS, CONTENT)
    monkeypatch.setattr("ratenorm.io.files.SIZE_LIMIT", 10)
    with pytest.raises(FileFormatError, match="more than the 10"):
        read_tensors(path, "kind", 3)


def fail(code: int) -> object:
    def call(*args: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, code: int
) -> None:
    path = write_atomic(tmp_path / "file", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(f"ratenorm.io.files.os.{function}", fail(code))
        with pytest.raises(RatenormError, match=os.strerror(code)) as caught:
            write_atomic(path, b"new")
    assert "untouched" in str(caught.value)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]  # nothing stray
    assert write_atomic(path, b"new").read_bytes() == b"new"


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.open", fail(errno.EROFS))
    with pytest.raises(RatenormError, match=r"Read-only file system.*a folder that can be written"):
        write_atomic(tmp_path / "file", b"x")


def test_a_killed_writer_leaves_a_stray_that_is_swept(tmp_path: Path) -> None:
    path = write_atomic(tmp_path / "file", b"old")
    stray = tmp_path / ".file.part-0badcafe"
    stray.write_bytes(b"half")
    (tmp_path / ".hidden").write_bytes(b"not ours")
    assert sweep(tmp_path) == [stray]
    assert sorted(f.name for f in tmp_path.iterdir()) == [".hidden", "file"]
    assert path.read_bytes() == b"old"


def test_json_is_the_same_for_the_same_content() -> None:
    assert to_json({"b": 1, "a": [1.5, None, "θ"]}) == '{"a":[1.5,null,"θ"],"b":1}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(float("nan"))


def test_what_a_killed_writer_left_of_one_file_is_swept_by_age(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    own, other = tmp_path / ".record.json.part-0badcafe", tmp_path / ".other.json.part-0badcafe"
    for file in (path, own, other):
        file.write_bytes(b"{}")
    assert sweep_of(path, seconds=60) == []
    assert sweep_of(path) == [own]
    assert sorted(tmp_path.iterdir()) == sorted([path, other])


@given(seed=st.integers(0, 10**6), bits=st.integers(1, 15), low=st.integers(-40, 20))
def test_weights_on_a_grid_are_packed_without_loss(seed: int, bits: int, low: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(-(2**bits) + 1, 2**bits, (3, 2, 5), generator=generator).float()
    weight = whole * torch.exp2(torch.randint(low, low + 8, (3, 1, 1), generator=generator).float())
    parts = packed(weight)
    assert parts is not None
    assert parts[0].dtype == torch.int16
    assert torch.equal(unpacked(*parts), weight)


def test_weights_off_the_grid_stay_as_they_are() -> None:
    assert packed(torch.rand(4, 4)) is None
    assert packed(torch.rand(4, 4).double()) is None
    assert packed(torch.full((2, 2), torch.inf)) is None
    assert packed(torch.ones(4)) is None
    zeros = packed(torch.zeros(2, 2))
    assert zeros is not None
    assert torch.equal(unpacked(*zeros), torch.zeros(2, 2))
    whole, unit = torch.ones(2, 3, dtype=torch.int16), torch.ones(2)
    for wrong in (
        (whole.float(), unit),
        (whole, unit[:1]),
        (whole, -unit),
        (whole, unit * torch.nan),
        (whole[0], unit),
    ):
        with pytest.raises(ValueError, match=r"packed|positive"):
            unpacked(*wrong)
