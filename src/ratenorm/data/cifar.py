"""CIFAR-10 and CIFAR-100 in their official binary version: fixed-size records, no pickle.

A record is the label byte (CIFAR-100: coarse label, then fine label), then the red, green and blue plane, row
by row.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch

from ratenorm.data.files import read_checked
from ratenorm.data.image_set import ImageSet
from ratenorm.data.sets import FileSpec, SetSpec, Split
from ratenorm.errors import DataError


def read_cifar(spec: SetSpec, split: Split, root: Path) -> ImageSet:
    """One split of a set in the CIFAR layout from `root`/`spec.folder`."""
    folder = root / spec.folder
    if not folder.is_dir():
        raise DataError(
            f"Loading {spec.name}: the folder {folder} with its official binary files is missing. {spec.fix}"
        )
    classes = _read_class_names(spec, folder)
    parts = [_read_records(spec, file, folder) for file in spec.split_files(split)]
    images = torch.cat([part[0] for part in parts]) if len(parts) > 1 else parts[0][0].contiguous()
    labels = torch.cat([part[1] for part in parts])
    return ImageSet(spec.name, images, labels, classes)


def _read_records(spec: SetSpec, file: FileSpec, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as a view into the file's bytes, labels as int64."""
    content = read_checked(spec, file, folder)
    record = spec.label_bytes + math.prod(spec.image_shape)
    rows = torch.frombuffer(content, dtype=torch.uint8).reshape(-1, record)
    labels = rows[:, spec.label_bytes - 1].long()
    outside = labels >= spec.class_count
    if bool(outside.any()):
        first = int(outside.nonzero()[0])
        raise DataError(
            f"Reading {spec.name}: {folder / file.name} is damaged: record {first} has label "
            f"{int(labels[first])}, allowed are 0 to {spec.class_count - 1}. {spec.fix}"
        )
    return rows[:, spec.label_bytes :].reshape(-1, *spec.image_shape), labels


def _read_class_names(spec: SetSpec, folder: Path) -> tuple[str, ...]:
    if spec.class_names is None:
        return tuple(str(label) for label in range(spec.class_count))
    content = read_checked(spec, spec.file(spec.class_names), folder)
    path = folder / spec.class_names
    try:
        names = tuple(line.strip() for line in content.decode("ascii").splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise DataError(f"Reading {spec.name}: {path} is damaged: not ASCII text ({error}). {spec.fix}") from error
    if len(names) != spec.class_count:
        raise DataError(
            f"Reading {spec.name}: {path} is damaged: {spec.class_count} class names were expected, found "
            f"{len(names)}. {spec.fix}"
        )
    return names
