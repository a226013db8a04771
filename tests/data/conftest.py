"""A tiny set in the CIFAR layout, and archives of it (also wrong ones)."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from ratenorm.data.image_set import ImageSet
from ratenorm.data.sets import ArchiveSpec, FileSpec, SetSpec

RECORD = 1 + 3 * 4 * 4


@dataclass(frozen=True)
class Tiny:
    """Six training and four test images of 3x4x4, three classes."""

    contents: dict[str, bytes]
    spec: SetSpec

    def write(self, root: Path) -> Path:
        folder = root / self.spec.folder
        folder.mkdir(parents=True)
        for name, content in self.contents.items():
            (folder / name).write_bytes(content)
        return folder

    def archive(self, *extra: tuple[tarfile.TarInfo, bytes], contents: dict[str, bytes] | None = None) -> bytes:
        """A .tar.gz of the set, with additional members."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, content in (self.contents if contents is None else contents).items():
                info = tarfile.TarInfo(f"{self.spec.folder}/{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            for info, content in extra:
                tar.addfile(info, io.BytesIO(content))
        return buffer.getvalue()

    @staticmethod
    def archive_spec(content: bytes) -> ArchiveSpec:
        digest = hashlib.sha256(content).hexdigest()
        return ArchiveSpec("http://unused.invalid/tiny.tar.gz", len(content), digest)


def _records(labels: list[int], seed: int) -> bytes:
    pixels = torch.randint(0, 256, (len(labels), RECORD - 1), generator=torch.Generator().manual_seed(seed))
    return b"".join(bytes([label]) + bytes(row) for label, row in zip(labels, pixels.tolist()))


@pytest.fixture
def tiny() -> Tiny:
    contents = {
        "a.bin": _records([0, 1, 2], 1),
        "b.bin": _records([2, 1, 0], 2),
        "test.bin": _records([0, 0, 1, 2], 3),
        "names.txt": b"cat\ndog\nowl\n\n",
    }
    pinned = hashlib.sha256(contents["a.bin"]).hexdigest()
    spec = SetSpec(
        name="tiny",
        folder="tiny-bin",
        files=(
            FileSpec("a.bin", 3 * RECORD, pinned),
            FileSpec("b.bin", 3 * RECORD),
            FileSpec("test.bin", 4 * RECORD),
            FileSpec("names.txt"),
        ),
        train=("a.bin", "b.bin"),
        test=("test.bin",),
        image_shape=(3, 4, 4),
        class_count=3,
        class_names="names.txt",
        archive=ArchiveSpec("http://unused.invalid/tiny.tar.gz", 1, "0" * 64),
    )
    return Tiny(contents, spec)


@pytest.fixture
def make_set() -> Callable[..., ImageSet]:
    """An ImageSet whose every image is recognisable by its pixels."""

    def make(count: int = 10, shape: tuple[int, int, int] = (3, 8, 8), classes: int = 3) -> ImageSet:
        generator = torch.Generator().manual_seed(count)
        images = torch.randint(0, 256, (count, *shape), generator=generator, dtype=torch.uint8)
        labels = torch.arange(count) % classes
        return ImageSet("made", images, labels, tuple(f"class {label}" for label in range(classes)))

    return make


@pytest.fixture
def without_checksums(tiny: Tiny) -> Tiny:
    """The tiny set with sizes but no checksum: damage must be found in the content."""
    files = tuple(replace(file, sha256=None) for file in tiny.spec.files)
    return Tiny(tiny.contents, replace(tiny.spec, files=files))
