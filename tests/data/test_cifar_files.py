import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratenorm.data import data_root, load, verify
from ratenorm.data.cifar import read_cifar
from ratenorm.data.files import check_files
from ratenorm.data.sets import CIFAR10, CIFAR100
from ratenorm.errors import DataError, UsageError


def test_reads_records_in_order(tiny, tmp_path):
    tiny.write(tmp_path)
    train = read_cifar(tiny.spec, "train", tmp_path)
    assert train.labels.tolist() == [0, 1, 2, 2, 1, 0]
    assert train.classes == ("cat", "dog", "owl")
    assert train.images.shape == (6, 3, 4, 4)
    record = tiny.contents["b.bin"][49:98]
    assert bytes(train.images[4].flatten().tolist()) == record[1:]
    assert read_cifar(tiny.spec, "test", tmp_path).labels.tolist() == [0, 0, 1, 2]


def test_last_label_byte_is_the_class(tiny, tmp_path):
    folder = tiny.write(tmp_path)
    (folder / "test.bin").write_bytes(bytes([9, 2]) + bytes(48) + bytes([9, 0]) + bytes(48))
    files = tuple(replace(file, size=100) if file.name == "test.bin" else file for file in tiny.spec.files)
    spec = replace(tiny.spec, label_bytes=2, files=files)
    assert read_cifar(spec, "test", tmp_path).labels.tolist() == [2, 0]


def test_official_layouts():
    for spec, train, test, label_bytes in ((CIFAR10, 5, 1, 1), (CIFAR100, 1, 1, 2)):
        assert len(spec.split_files("train")) == train
        assert len(spec.split_files("test")) == test
        record = label_bytes + 3072
        assert sum(file.limit for file in spec.split_files("train")) == 50000 * record
        assert sum(file.limit for file in spec.split_files("test")) == 10000 * record
        assert spec.archive.url == f"https://www.cs.toronto.edu/~kriz/{spec.archive.name}"


def test_missing_folder_names_it_and_the_command(tmp_path):
    with pytest.raises(DataError, match=r"cifar-10-batches-bin.*is missing.*`ratenorm data get cifar10`"):
        load("cifar10", "train", root=tmp_path)


def test_missing_file(tiny, tmp_path):
    (tiny.write(tmp_path) / "b.bin").unlink()
    with pytest.raises(DataError, match=r"b\.bin is missing.*ratenorm data get tiny"):
        read_cifar(tiny.spec, "train", tmp_path)
    assert len(read_cifar(tiny.spec, "test", tmp_path)) == 4, "the other split is whole"


@pytest.mark.parametrize("change", [-1, 1], ids=["truncated", "too long"])
def test_wrong_size_says_expected_and_found(tiny, tmp_path, change):
    folder = tiny.write(tmp_path)
    (folder / "b.bin").write_bytes((tiny.contents["b.bin"] + b"x")[: 147 + change])
    with pytest.raises(DataError, match=rf"b\.bin is damaged: 147 bytes were expected, found {147 + change}"):
        read_cifar(tiny.spec, "train", tmp_path)
    assert (folder / "b.bin").stat().st_size == 147 + change, "nothing is overwritten"


def test_flipped_byte_breaks_the_pinned_checksum(tiny, tmp_path):
    folder = tiny.write(tmp_path)
    content = bytearray(tiny.contents["a.bin"])
    content[10] ^= 1
    (folder / "a.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.bin is damaged: sha256 \w{64} was expected, found \w{64}"):
        read_cifar(tiny.spec, "train", tmp_path)


def test_label_out_of_range(without_checksums, tmp_path):
    folder = without_checksums.write(tmp_path)
    content = bytearray(without_checksums.contents["b.bin"])
    content[49] = 3
    (folder / "b.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"b\.bin is damaged: record 1 has label 3, allowed are 0 to 2"):
        read_cifar(without_checksums.spec, "train", tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (b"cat\ndog\n", "3 class names were expected, found 2"),
        (b"cat\ndog\n\xff\n", "not ASCII"),
        (b"x" * 70_000, "at most 65536 bytes were expected, found 70000"),
    ],
)
def test_damaged_class_names(tiny, tmp_path, names, message):
    (tiny.write(tmp_path) / "names.txt").write_bytes(names)
    with pytest.raises(DataError, match=rf"names\.txt is damaged: .*{message}"):
        read_cifar(tiny.spec, "train", tmp_path)


def test_folder_in_place_of_a_file(tiny, tmp_path):
    folder = tiny.write(tmp_path)
    (folder / "a.bin").unlink()
    (folder / "a.bin").mkdir()
    with pytest.raises(DataError, match=r"a\.bin is damaged"):
        read_cifar(tiny.spec, "train", tmp_path)


def test_file_that_cannot_be_read(tiny, tmp_path, monkeypatch):
    def refuse(self, mode):
        raise PermissionError(13, "Permission denied")

    tiny.write(tmp_path)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"names\.txt is damaged: cannot be read: Permission denied"):
        read_cifar(tiny.spec, "train", tmp_path)


def test_classes_without_names_are_numbered(tiny, tmp_path):
    tiny.write(tmp_path)
    assert read_cifar(replace(tiny.spec, class_names=None), "test", tmp_path).classes == ("0", "1", "2")


def test_status_of_every_file(tiny, tmp_path):
    folder = tiny.write(tmp_path)
    assert check_files(tiny.spec, tmp_path).complete
    (folder / "a.bin").write_bytes(b"")
    (folder / "test.bin").unlink()
    status = check_files(tiny.spec, tmp_path)
    assert [file.state for file in status.files] == ["damaged", "complete", "missing", "complete"]
    assert not status.complete
    assert "a.bin: damaged (147 bytes were expected, found 0)" in str(status)


def test_damaged_list_of_checksums(tiny, tmp_path):
    folder = tiny.write(tmp_path)
    for content, message in ((b"abc\n", "every line must be"), (b"\xff", "not a list of checksums")):
        (folder / "SHA256SUMS").write_bytes(content)
        with pytest.raises(DataError, match=f"SHA256SUMS: {message}"):
            read_cifar(tiny.spec, "train", tmp_path)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["a.bin", "b.bin", "names.txt"]),
    position=st.integers(0, 10_000),
    value=st.integers(0, 255),
    keep=st.integers(0, 200),
)
def test_mutated_files_give_a_set_or_a_data_error(without_checksums, tmp_path_factory, name, position, value, keep):
    root = tmp_path_factory.mktemp("cifar")
    folder = without_checksums.write(root)
    content = bytearray(without_checksums.contents[name])
    content[position % len(content)] = value
    (folder / name).write_bytes(content[:keep])
    with contextlib.suppress(DataError):
        train = read_cifar(without_checksums.spec, "train", root)
        assert len(train) == 6
        assert int(train.labels.max()) < 3


def test_root_argument_beats_variable_beats_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RATENORM_DATA", raising=False)
    assert data_root() == tmp_path / "home" / ".cache" / "ratenorm" / "data"
    monkeypatch.setenv("RATENORM_DATA", str(tmp_path / "variable"))
    assert data_root() == tmp_path / "variable"
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    assert data_root("~/x") == Path(tmp_path / "home" / "x")
    assert verify("cifar100").folder == tmp_path / "variable" / "cifar-100-binary"


def test_unknown_names():
    with pytest.raises(UsageError, match=r"known sets are mnist, cifar10, cifar100\. Did you mean 'cifar10'\?"):
        load("CIFAR-10", "train")
    with pytest.raises(UsageError, match="'train' or 'test', not 'validation'"):
        load("mnist", "validation")


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_real_files_where_they_are_present(name):
    if not (data_root() / (CIFAR10 if name == "cifar10" else CIFAR100).folder).is_dir():
        pytest.skip(f"{name} is not on this machine")
    test = load(name, "test")
    assert test.images.shape == (10000, 3, 32, 32)
    counts = torch.bincount(test.labels)
    assert bool((counts == 10000 // len(test.classes)).all())
