import contextlib
import gzip
import hashlib
import lzma
import struct
import time
from importlib.resources import files

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ratenorm.data import NORMALISATIONS, load, measure_normalisation, verify
from ratenorm.data import mnist_files as module
from ratenorm.data.embed import embed
from ratenorm.data.idx import parse_idx
from ratenorm.data.sets import MNIST, FileSpec, SetSpec
from ratenorm.errors import DataError


def idx(tensor: torch.Tensor) -> bytes:
    header = struct.pack(f">HBB{tensor.dim()}I", 0, 8, tensor.dim(), *tensor.shape)
    return header + bytes(tensor.flatten().tolist())


IMAGES = torch.randint(0, 256, (5, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
LABELS = torch.tensor([3, 1, 4, 1, 5], dtype=torch.uint8)
CONTENTS = {"i": idx(IMAGES), "l": idx(LABELS)}
SMALL = SetSpec(
    name="mnist",
    folder="MNIST/raw",
    files=(FileSpec("i", len(CONTENTS["i"])), FileSpec("l", len(CONTENTS["l"]))),
    train=("i", "l"),
    test=("i", "l"),
    image_shape=(1, 4, 4),
    class_count=10,
)


def lay_out(root, contents, packed):
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for name, content in contents.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def mnist_train():
    return load("mnist", "train")


def test_is_complete_and_in_the_official_order(mnist_train):
    assert mnist_train.images.shape == (60000, 1, 28, 28)
    assert mnist_train.images.dtype == torch.uint8
    assert mnist_train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert torch.bincount(mnist_train.labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    test = load("mnist", "test")
    assert test.images.shape == (10000, 1, 28, 28)
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]


def test_normalisation_table_is_what_the_images_measure(mnist_train):
    measured = measure_normalisation(mnist_train)
    assert measured.mean == pytest.approx(NORMALISATIONS["mnist"].mean, abs=5e-5)
    assert measured.std == pytest.approx(NORMALISATIONS["mnist"].std, abs=5e-5)


def test_loads_within_two_seconds_of_processor_time():
    begin = time.process_time()
    load("mnist", "train")
    assert time.process_time() - begin < 2.0


def test_package_stays_small_and_names_the_licence():
    folder = files("ratenorm.data").joinpath("mnist")
    sizes = [len(folder.joinpath(f"{file.name}.xz").read_bytes()) for file in MNIST.files]
    assert sum(sizes) < 10_000_000
    licence = folder.joinpath("LICENSE.txt").read_text()
    for words in ("CC BY-SA 3.0", "Yann LeCun", "Corinna Cortes", *(file.sha256 for file in MNIST.files)):
        assert words in licence


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_official_files_under_a_root(tmp_path, packed):
    lay_out(tmp_path, CONTENTS, packed)
    loaded = module.read_mnist("train", tmp_path, SMALL)
    assert torch.equal(loaded.images[:, 0], IMAGES)
    assert torch.equal(loaded.labels, LABELS.long())


def test_missing_under_a_root_names_both_spellings(tmp_path):
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is missing.*part of the package"):
        load("mnist", "train", root=tmp_path)
    assert {file.state for file in verify("mnist", tmp_path).files} == {"missing"}


def test_wrong_checksum_is_named_and_verified(tmp_path, monkeypatch):
    lay_out(tmp_path, {"i": CONTENTS["i"]}, packed=False)
    pinned = SetSpec(**{**vars(SMALL), "files": (FileSpec("i", len(CONTENTS["i"]), "0" * 64), SMALL.files[1])})
    found = hashlib.sha256(CONTENTS["i"]).hexdigest()
    with pytest.raises(DataError, match=f"sha256 {'0' * 64} was expected, found {found}"):
        module.read_mnist("train", tmp_path, pinned)
    monkeypatch.setattr(module, "MNIST", pinned)
    states = module.check_mnist(tmp_path).files
    assert [file.state for file in states] == ["damaged", "missing"]
    assert "sha256" in states[0].detail


def test_label_outside_the_classes(tmp_path):
    wrong = idx(torch.tensor([3, 1, 4, 10, 5], dtype=torch.uint8))
    lay_out(tmp_path, {**CONTENTS, "l": wrong}, packed=False)
    with pytest.raises(DataError, match="label 10, allowed are 0 to 9"):
        module.read_mnist("train", tmp_path, SMALL)


def test_gzip_bomb_is_not_unpacked(tmp_path):
    folder = lay_out(tmp_path, CONTENTS, packed=True)
    (folder / "i.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataError, match="96 bytes were expected, found more than 96"):
        module.read_mnist("train", tmp_path, SMALL)


def test_damaged_package_says_reinstall(tmp_path, monkeypatch):
    for name, content in CONTENTS.items():
        (tmp_path / f"{name}.xz").write_bytes(lzma.compress(content))
    monkeypatch.setattr(module, "embedded_folder", lambda: tmp_path)
    assert len(module.read_mnist("test", None, SMALL)) == 5
    whole = (tmp_path / "i.xz").read_bytes()
    (tmp_path / "i.xz").write_bytes(whole[:40])
    with pytest.raises(DataError, match=r"i\.xz cannot be read.*reinstall"):
        module.read_mnist("test", None, SMALL)
    monkeypatch.setattr(module, "MNIST", SMALL)
    assert [file.state for file in module.check_mnist(None).files] == ["damaged", "complete"]
    (tmp_path / "i.xz").write_bytes(lzma.compress(CONTENTS["i"] + b"x"))
    with pytest.raises(DataError, match="96 bytes were expected, found more than 96"):
        module.read_mnist("test", None, SMALL)
    (tmp_path / "i.xz").unlink()
    with pytest.raises(DataError, match="reinstall"):
        module.read_mnist("test", None, SMALL)


def test_embed_round_trip_and_refusal(tmp_path, monkeypatch):
    source = lay_out(tmp_path, CONTENTS, packed=True)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
    pinned = tuple(FileSpec(name, len(CONTENTS[name]), digests[name]) for name in CONTENTS)
    monkeypatch.setattr("ratenorm.data.embed.MNIST", SetSpec(**{**vars(SMALL), "files": pinned}))
    embed(source, tmp_path / "out")
    assert lzma.decompress((tmp_path / "out" / "i.xz").read_bytes()) == CONTENTS["i"]
    (source / "l.gz").write_bytes(gzip.compress(b"other"))
    with pytest.raises(DataError, match="Embedding l: sha256"):
        embed(source, tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x08", "header of 8 bytes was expected, the file has only 3"),
        (b"\0\0\x0d\x01" + bytes(9), "found 00 00 0d 01"),
        (b"\0\0\x08\x02" + bytes(9), "found 00 00 08 02"),
        (idx(LABELS)[:4] + struct.pack(">I", 2**31) + bytes(5), r"sizes \(5,\) were expected.*2147483648"),
        (idx(LABELS)[:-1], "13 bytes were expected, found 12"),
        (idx(LABELS) + b"x", "13 bytes were expected, found 14"),
    ],
    ids=["short", "float", "dimensions", "huge", "truncated", "too long"],
)
def test_idx_errors(content, message):
    with pytest.raises(DataError, match=message):
        parse_idx(content, (5,), "labels", "Fix: get it again.")


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_mutated_idx_gives_the_shape_or_a_data_error(data):
    content = bytearray(CONTENTS["i"])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 15))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    with contextlib.suppress(DataError):
        assert parse_idx(content, (5, 4, 4), "images", "").shape == (5, 4, 4)


@settings(max_examples=30, deadline=None)
@given(position=st.integers(0, 10_000), value=st.integers(0, 255), keep=st.floats(0, 1))
def test_mutated_gzip_gives_a_set_or_a_data_error(tmp_path_factory, position, value, keep):
    root = tmp_path_factory.mktemp("mnist")
    folder = lay_out(root, CONTENTS, packed=True)
    packed = bytearray((folder / "i.gz").read_bytes())
    packed[position % len(packed)] = value
    (folder / "i.gz").write_bytes(packed[: int(len(packed) * keep) + 1])
    with contextlib.suppress(DataError):
        assert len(module.read_mnist("train", root, SMALL)) == 5
