"""Checkpoints: the full state of a training as one safetensors file, so that resuming equals not stopping."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm._version import __version__
from ratenorm.errors import FileFormatError
from ratenorm.io.files import read_tensors, write_tensors

FORMAT, VERSION = "ratenorm-checkpoint", 1


@dataclass
class Checkpoint:
    """`tensors` are named state (`model/…`, `optimizer/…`, `average/…`); `progress` is plain JSON."""

    tensors: dict[str, Tensor]
    progress: dict[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    write_tensors(
        path,
        checkpoint.tensors,
        {"format": FORMAT, "version": VERSION, "ratenorm": __version__, "progress": checkpoint.progress},
    )


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    tensors, content = read_tensors(path, FORMAT, VERSION)
    progress = content.get("progress")
    if not isinstance(progress, dict):
        raise FileFormatError(f"Reading {path}: the checkpoint does not say how far the training was. Start anew.")
    return Checkpoint(tensors, progress)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's buffers by parameter number and name; numbers among them as tensors."""
    found: dict[str, Tensor] = {}
    for index, parameter in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                found[f"optimizer/{index}/{name}"] = torch.as_tensor(value)
    return found


def restore_optimizer_(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`; `tensors` without the prefix."""
    parameters = list(_parameters(optimizer))
    optimizer.state.clear()
    for name, tensor in tensors.items():
        index, _, key = name.partition("/")
        parameter = parameters[int(index)]
        # memory layout matters for bit-identity: momentum follows the layout of its parameter
        value = torch.empty_like(parameter).copy_(tensor) if tensor.shape == parameter.shape else tensor.clone()
        optimizer.state[parameter][key] = value


def _parameters(optimizer: torch.optim.Optimizer) -> Iterable[nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]
