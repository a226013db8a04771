"""Trained networks that come with ratenorm: `zoo.load("vgg16-cifar10")`.

In a clone they lie in `zoo/` at its top. A wheel carries the small ones; the others are looked for in a cache and then
downloaded (`zoo_download`). `index.json` lists all of them with their checksums. Every network has a card (`NAME.md`)
that says what it was trained on and how it does. Entries are made by `python -m paper.zoo_entries`.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import nn

from ratenorm.errors import FileFormatError, UsageError
from ratenorm.graph.net import SpikingNet
from ratenorm.io.files import write_atomic
from ratenorm.io.networks import NetworkSpec, load_network
from ratenorm.io.spiking import load_with_about
from ratenorm.io.zoo_download import HUB, fetched, from_hub

FORMAT, VERSION = "ratenorm-zoo", 1
INDEX = "index.json"
INSTALLED = "zoo_files"  # the name of the folder in a wheel: `zoo` is this module
LARGEST = 32_000_000  # bytes a file: a repository keeps every version of it for ever
INDEX_LIMIT = 2**20  # bytes

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Entry:
    """A line of the index. `accuracy` is of the test images, measured on the file as it is stored.

    `kind` is "network" (to convert) or "spiking" (converted; its accuracy is that after the steps it was trained for).
    """

    name: str
    file: str
    sha256: str
    bytes: int
    accuracy: float
    data: str
    kind: str = "network"

    def __post_init__(self) -> None:
        if not all(isinstance(v, str) for v in (self.name, self.file, self.sha256, self.data)):
            raise ValueError("name, file, sha256 and data must be texts")
        if self.kind not in ("network", "spiking"):
            raise ValueError(f"kind is {self.kind!r}")
        if type(self.bytes) is not int or not 0.0 <= float(self.accuracy) <= 1.0:
            raise ValueError(f"bytes is {self.bytes!r} and accuracy {self.accuracy!r}")
        if Path(self.file).name != self.file:
            raise ValueError(f"file is {self.file!r}, which is not the plain name of a file")


def folder() -> Path:
    """Where the networks of this installation lie."""
    installed = Path(__file__).parents[1] / INSTALLED
    return installed if installed.is_dir() else Path(__file__).parents[3] / "zoo"


def names(pattern: str = "*", folder: PathLike | None = None) -> builtins.list[str]:
    """The networks whose name matches a pattern.

    Example:
        >>> import ratenorm as rn
        >>> rn.zoo.list("vgg16-*")
        ['vgg16-cifar10', 'vgg16-cifar10-low-latency', 'vgg16-cifar10-relu']
    """
    return sorted(name for name in entries(folder) if fnmatchcase(name, pattern))


def load(name: str, folder: PathLike | None = None) -> tuple[nn.Module, NetworkSpec]:
    """A trained network in evaluation mode, and what it takes.

    Args:
        name: A name of the zoo, or `hf://owner/name` for a network on the Hugging Face hub.
        folder: Another folder with an index.

    Returns:
        The network, and its specification: `spec.normalisation` is the transform of its images.

    Example:
        >>> import ratenorm as rn
        >>> model, spec = rn.zoo.load("cnn7-mnist-relu")
        >>> spec.model, spec.dataset, spec.input_shape
        ('cnn7', 'mnist', (1, 28, 28))
    """
    if not name.startswith(HUB) and (known := entries(folder).get(name)) is not None and known.kind == "spiking":
        raise UsageError(
            f"Loading {name!r} from the zoo: it is a spiking network already. Use zoo.load_spiking({name!r})."
        )
    return load_network(path_of(name, folder))


def load_spiking(name: str, folder: PathLike | None = None) -> tuple[SpikingNet, NetworkSpec]:
    """A spiking network of the zoo, and what it takes.

    Args:
        name: A name of the zoo.
        folder: Another folder with an index.

    Returns:
        The spiking network, and the specification of the network it came from.

    Raises:
        UsageError: If there is no such network, or it is one to convert.

    Example:
        >>> import ratenorm as rn
        >>> net, spec = rn.zoo.load_spiking("vgg16-cifar10-low-latency")
        >>> len(net.populations), spec.dataset
        (15, 'cifar10')
    """
    path = path_of(name, folder)
    if entries(folder)[name].kind != "spiking":
        raise UsageError(
            f"Loading {name!r} from the zoo: it is a network to convert. Use zoo.load({name!r}) and rn.convert."
        )
    net, about = load_with_about(path)
    return net, NetworkSpec.from_json(about["spec"])


def path_of(name: str, folder: PathLike | None = None) -> Path:
    """The file of a network, its checksum verified; it is downloaded if this installation does not carry it."""
    if name.startswith(HUB):
        return from_hub(name)
    known = entries(folder)
    if name not in known:
        there_are = f"There are: {', '.join(sorted(known))}." if known else "It is empty."
        raise UsageError(f"Loading {name!r} from the zoo: there is no such network. {there_are}")
    entry, path = known[name], _place(folder) / known[name].file
    if folder is None and not path.exists():
        path = fetched(name, entry.file, entry.bytes, entry.sha256)
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise FileFormatError(
            f"Loading {name!r} from the zoo: {path} cannot be read ({error.strerror or error}). Check out or install "
            "ratenorm again."
        ) from error
    if found != entry.sha256:
        raise FileFormatError(
            f"Loading {name!r} from the zoo: the sha256 of {path} is {found}, the index says {entry.sha256}. The "
            "file is damaged or not the one that was measured. Remove it, then check out or install ratenorm again."
        )
    return path


def entries(folder: PathLike | None = None) -> dict[str, Entry]:
    """The index: every network by name."""
    path = _place(folder) / INDEX
    try:
        if path.stat().st_size > INDEX_LIMIT:
            raise ValueError(f"more than {INDEX_LIMIT} bytes")
        content = dict(json.loads(path.read_text(encoding="utf-8")))
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise ValueError(f"format {content['format']!r}, version {content['version']!r}")
        found = [Entry(**line) for line in content["networks"]]
    except OSError as error:
        raise FileFormatError(
            f"Reading the zoo: there is no index at {path} ({error.strerror or error}). Install ratenorm from a wheel, "
            "or work in a clone of its repository."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"Reading the zoo: {path} is damaged ({error}). Check it out again.") from error
    return {entry.name: entry for entry in found}


def write_index(folder: PathLike, found: dict[str, Entry]) -> Path:
    """Write the index, sorted by name, one network a line, so that a change to it can be read."""
    lines = ",\n".join("  " + json.dumps(asdict(found[name]), sort_keys=True) for name in sorted(found))
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    start = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items())
    return write_atomic(Path(folder) / INDEX, f'{{{start}, "networks": [\n{lines}\n]}}\n'.encode())


def _place(given: PathLike | None) -> Path:
    return folder() if given is None else Path(given)


list = names  # noqa: A001 (`rn.zoo.list("*cifar10*")`; last, so that the file itself can use the built-in)
