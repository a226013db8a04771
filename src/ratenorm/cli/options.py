"""Options that several commands share, and how they are read."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from ratenorm.errors import UsageError

if TYPE_CHECKING:
    from ratenorm.io.run_folder import Mode
    from ratenorm.workflows.data import DataConfig


def mode(resume: bool, overwrite: bool) -> Mode:
    """What to do with a used run folder."""
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other: one goes on, the other starts anew.")
    return "resume" if resume else "overwrite" if overwrite else "new"


def data_config(data: str, root: Path | None, size: int | None = None) -> DataConfig:
    """`mnist`, `cifar10`, `cifar100`, or the path of an image folder."""
    from ratenorm.workflows.data import DataConfig

    if data in ("mnist", "cifar10", "cifar100"):
        return DataConfig(data, None if root is None else str(root))
    if Path(data).is_dir():
        return DataConfig(Path(data).resolve().name, None, data, size)
    raise UsageError(
        f"--data is {data!r}: neither a known set (mnist, cifar10, cifar100) nor a folder with one subfolder of images "
        "for each class."
    )


PICKLES = (".pt", ".pth", ".ckpt", ".bin", ".pkl")
PICKLE_HELP = (
    "Reading {file}: files of this kind can run any program when they are opened, so ratenorm does not open them. Save "
    "the weights as safetensors where the file comes from, and give that file:\n"
    "    from safetensors.torch import save_file\n"
    '    save_file(model.state_dict(), "{out}")'
)


def network_file(given: Path) -> Path:
    """The file that a word on the command line means: itself, or the network of this name in the zoo."""
    from ratenorm.io import zoo, zoo_download

    name = str(given)
    if name.startswith("hf:/"):  # a Path has made one stroke of two
        return zoo.path_of(f"{zoo_download.HUB}{name.removeprefix('hf:/').lstrip('/')}")
    if given.suffix in PICKLES:
        raise UsageError(PICKLE_HELP.format(file=given, out=given.with_suffix(".safetensors")))
    if given.exists() or given.suffix or len(given.parts) != 1:
        return given
    if name in zoo.names():
        return zoo.path_of(name)
    close = difflib.get_close_matches(name, zoo.names(), 3)
    meant = f"Did you mean {' or '.join(close)}?" if close else "`ratenorm zoo list` names those of the zoo."
    raise UsageError(f"Reading {name}: there is no such file, and no network of the zoo has this name. {meant}")
