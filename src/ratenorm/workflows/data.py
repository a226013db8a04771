"""Which images a workflow reads, and what each may be used for.

Images that something learned from never score it: a folder is refused for both, and choices are made on the images
that the network's training held out.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratenorm.data import ImageSet, load, load_folder, split_holdout
from ratenorm.data.folder import part_of
from ratenorm.errors import UsageError
from ratenorm.io.networks import NetworkSpec
from ratenorm.workflows.fingerprint import of_images


@dataclass(frozen=True)
class DataConfig:
    """Which images: a known set, or a folder of images with one subfolder a class.

    A folder may have the subfolders `train` and `test` (or `val`), each with one subfolder for each class.

    Args:
        name: mnist, cifar10, cifar100, or the folder's name.
        root: Where known sets lie.
        folder: The image folder; None for a known set.
        size: Resize the folder's images to this many pixels a side.
        classes: Names in the order of a network's outputs; missing ones are fine, unknown ones refused.
        shape: Channels, height and width that a network takes.
    """

    name: str = "mnist"
    root: str | None = None
    folder: str | None = None
    size: int | None = None
    classes: tuple[str, ...] | None = None
    shape: tuple[int, int, int] | None = None

    def of(self, spec: NetworkSpec) -> DataConfig:
        """The same images as a network takes them: a folder's classes are matched by name, its pictures by size."""
        if self.folder is None:
            return self
        return replace(self, classes=spec.classes or None, shape=spec.input_shape)

    def to_json(self) -> dict[str, Any]:
        """What was asked for. Keys of later versions are left out where they say nothing."""
        own: dict[str, Any] = {"name": self.name, "root": self.root, "folder": self.folder}
        return own if self.size is None else {**own, "size": self.size}

    def train(self) -> ImageSet:
        """The images to learn from."""
        return self._folder("train") if self.folder else load(self.name, "train", self.root)

    def test(self) -> ImageSet:
        """The images to score with."""
        return self._folder("test") if self.folder else load(self.name, "test", self.root)

    @property
    def split_by_folder(self) -> bool:
        """Whether learning and scoring read different images: a folder without `train` and `test` has one set."""
        return self.folder is None or part_of(self.folder, "train") != part_of(self.folder, "test")

    def _folder(self, split: str) -> ImageSet:
        assert self.folder is not None
        place = part_of(self.folder, split)
        size: int | tuple[int, int] | None = self.size if self.shape is None else self.shape[1:]
        channels = None if self.shape is None else self.shape[0]
        return replace(load_folder(place, size, self.classes, channels=channels), name=self.name)


def fingerprint_of(data: DataConfig, images: ImageSet) -> str | None:
    """What is kept of a folder's images that something learned from, to recognise them again."""
    return None if data.folder is None else of_images(images)


def check_not_learned_from(about: dict[str, Any], images: ImageSet, doing: str) -> None:
    """Refuse to score a network with the very images it was calibrated or trained on."""
    known = about.get("learned_from")
    if isinstance(known, list) and known and of_images(images) in known:
        raise UsageError(
            f"{doing}: the images of {images.name!r} are those that the network learned from or was calibrated on, so "
            f"they cannot score it. Give other images, or sort them into {images.name}/train/CLASS and "
            f"{images.name}/test/CLASS before training."
        )


def held_out_split(spec: NetworkSpec, path: str | os.PathLike[str] | None = None) -> tuple[int, int] | None:
    """How many images the network's training held out, and with which seed; None where nobody knows.

    Networks of the zoo from before version 0.2 have it in the file beside them.
    """
    if spec.held_out is not None:
        return spec.held_out
    if path is None:
        return None
    try:
        stage = json.loads(Path(path).with_suffix(".json").read_text(encoding="utf-8"))["config"]["stage1"]
        return int(stage["holdout"]), int(stage["seed"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def training_split(images: ImageSet, split: tuple[int, int] | None) -> tuple[ImageSet, ImageSet | None]:
    """The images a network learned from, and those its training held out; None where nobody knows."""
    if split is None or not 0 < split[0] < len(images):
        return images, None
    return split_holdout(images, *split)


def images_to_choose_by(images: ImageSet, split: tuple[int, int] | None, count: int, seed: int) -> tuple[ImageSet, str]:
    """At most `count` training images for choices, and what they are, as text.

    They are images that the network's training held out. Where that is not known, any training images: then the text
    says so.
    """
    _, held = training_split(images, split)
    if held is not None:
        chosen = held if count >= len(held) else split_holdout(held, count, seed)[1]
        return chosen, f"{len(chosen):,} training images that the network's training held out"
    chosen = split_holdout(images, min(count, len(images) // 2), seed)[1]
    return chosen, f"{len(chosen):,} training images, which the network may have learned from"
