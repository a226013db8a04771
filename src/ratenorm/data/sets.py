"""What each known data set consists of: files, exact sizes, checksums, where it comes from.

The sha256 of the CIFAR archives and of CIFAR-10's files are those of the official downloads. The files of
CIFAR-100 are not pinned: copies with the same images in another order are in use, and every order is a valid
training set. `ratenorm data get` writes the checksums of what it extracted beside the files, so that later
damage is found there too.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ratenorm.errors import UsageError

Split = Literal["train", "test"]
SPLITS: tuple[str, ...] = get_args(Split)

ROOT_VARIABLE = "RATENORM_DATA"
TEXT_LIMIT = 64 * 1024
"""Largest text file (class names) that is read or extracted, in bytes."""


@dataclass(frozen=True)
class FileSpec:
    """One file of a set. `size` None: a short text file whose length may vary between copies."""

    name: str
    size: int | None = None
    sha256: str | None = None

    @property
    def limit(self) -> int:
        """The most bytes this file may have."""
        return TEXT_LIMIT if self.size is None else self.size


@dataclass(frozen=True)
class ArchiveSpec:
    """Where a set is downloaded from. `folder` inside the archive is the folder of the set."""

    url: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class SetSpec:
    """A data set in its official files.

    `folder` is relative to the data root. For the CIFAR layout a record is `label_bytes` label bytes, the
    last of which is the class, and then the image, plane by plane.
    """

    name: str
    folder: str
    files: tuple[FileSpec, ...]
    train: tuple[str, ...]
    test: tuple[str, ...]
    image_shape: tuple[int, int, int]
    class_count: int
    label_bytes: int = 1
    class_names: str | None = None
    archive: ArchiveSpec | None = None

    def file(self, name: str) -> FileSpec:
        return next(file for file in self.files if file.name == name)

    def split_files(self, split: Split) -> tuple[FileSpec, ...]:
        return tuple(self.file(name) for name in (self.train if split == "train" else self.test))

    @property
    def fix(self) -> str:
        """The sentence that ends every error about this set's files."""
        if self.archive is None:
            return (
                f"Fix: leave the root out, {self.name} is part of the package; or lay the official files out "
                f"under <root>/{self.folder}."
            )
        return (
            f"Fix: `ratenorm data get {self.name}` downloads the official files (nothing is overwritten: "
            f"damaged files are set aside); or lay them out by hand under <root>/{self.folder} and pass the "
            f"root by --root or {ROOT_VARIABLE}."
        )


MNIST = SetSpec(
    name="mnist",
    folder="MNIST/raw",
    files=(
        FileSpec(
            "train-images-idx3-ubyte",
            47_040_016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        FileSpec(
            "train-labels-idx1-ubyte",
            60_008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        FileSpec(
            "t10k-images-idx3-ubyte",
            7_840_016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        FileSpec(
            "t10k-labels-idx1-ubyte",
            10_008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    train=("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    test=("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
    image_shape=(1, 28, 28),
    class_count=10,
)

_CIFAR10_SHA256 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

CIFAR10 = SetSpec(
    name="cifar10",
    folder="cifar-10-batches-bin",
    files=(
        *(FileSpec(name, 30_730_000, sha256) for name, sha256 in _CIFAR10_SHA256.items()),
        FileSpec("batches.meta.txt"),
    ),
    train=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    test=("test_batch.bin",),
    image_shape=(3, 32, 32),
    class_count=10,
    class_names="batches.meta.txt",
    archive=ArchiveSpec(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        size=170_052_171,
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
)

CIFAR100 = SetSpec(
    name="cifar100",
    folder="cifar-100-binary",
    files=(
        FileSpec("train.bin", 153_700_000),
        FileSpec("test.bin", 30_740_000),
        FileSpec("fine_label_names.txt"),
        FileSpec("coarse_label_names.txt"),
    ),
    train=("train.bin",),
    test=("test.bin",),
    image_shape=(3, 32, 32),
    class_count=100,
    label_bytes=2,  # coarse label, fine label
    class_names="fine_label_names.txt",
    archive=ArchiveSpec(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        size=168_513_733,
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
)

KNOWN: dict[str, SetSpec] = {spec.name: spec for spec in (MNIST, CIFAR10, CIFAR100)}


def find_spec(name: str) -> SetSpec:
    """The set of this name, or an error that lists the names there are."""
    if name in KNOWN:
        return KNOWN[name]
    near = difflib.get_close_matches(name.lower().replace("-", ""), KNOWN, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"Looking up the data set {name!r}: known sets are {', '.join(KNOWN)}.{hint}")


def check_split(split: str) -> None:
    if split not in SPLITS:
        raise UsageError(f"Loading a data set: the split must be 'train' or 'test', not {split!r}.")


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Where data sets live: the argument, else $RATENORM_DATA, else ~/.cache/ratenorm/data."""
    if root is not None:
        return Path(root).expanduser()
    if variable := os.environ.get(ROOT_VARIABLE):
        return Path(variable).expanduser()
    return Path.home() / ".cache" / "ratenorm" / "data"
