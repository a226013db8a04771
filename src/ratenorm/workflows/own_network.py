"""A user's own network on the command line: `--model package.module:factory` with weights in safetensors, or ONNX."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from ratenorm.data import NORMALISATIONS, measure_normalisation
from ratenorm.errors import FileFormatError, UsageError
from ratenorm.interop.onnx_import import load_onnx
from ratenorm.io.networks import NetworkSpec, load_network
from ratenorm.workflows.data import DataConfig


def load_any(
    path: str | os.PathLike[str], factory: str | None = None, data: DataConfig | None = None
) -> tuple[nn.Module, NetworkSpec]:
    """A network file of ours, or with a factory the user's own network and its weights.

    Args:
        path: The network file, an ONNX file, or the weights (a state_dict saved as safetensors).
        factory: "package.module:function", called without arguments, gives the network.
        data: Images of the user's network: its classes, size and normalisation are read from them.

    Returns:
        The network in evaluation mode, and what it is fed.

    Raises:
        UsageError: If the factory cannot be called, or gives something else than a network.
        FileFormatError: If the weights cannot be read or do not fit.
    """
    onnx = Path(path).suffix == ".onnx"
    if factory is None and not onnx:
        return load_network(path)
    if factory is not None and onnx:
        raise UsageError(f"Loading {path}: an ONNX file is a network by itself; leave --model out.")
    name = Path(path).name if factory is None else factory
    if data is None:
        raise UsageError(
            f"Loading the network of {name}: its data set is not known. Name it with --data, for its classes and "
            "normalisation."
        )
    images = data.train()
    if factory is None:
        model = load_onnx(path, shape=images.image_shape)
    else:
        model = _make(factory)
        _fill(model, Path(path), factory)
    known = NORMALISATIONS.get(images.name)
    normalise = measure_normalisation(images) if known is None else known
    channels, height, width = images.image_shape
    spec = NetworkSpec(
        name,
        "own",
        len(images.classes),
        channels,
        (height, width),
        normalise.mean,
        normalise.std,
        images.classes,
        images.name,
    )
    return model.eval(), spec


def _make(factory: str) -> nn.Module:
    module_name, colon, name = factory.partition(":")
    if not colon or not module_name or not name:
        raise UsageError(f"Loading a network: {factory!r} must be package.module:function, such as my_nets.small:make.")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        make = getattr(importlib.import_module(module_name), name)
        model = make()
    except Exception as error:  # it is the user's code, which may raise anything
        first = (str(error).splitlines() or [""])[0]
        raise UsageError(
            f"Loading a network: {factory} could not be called ({type(error).__name__}: {first}). It must be "
            "importable from this folder and take no arguments."
        ) from error
    if not isinstance(model, nn.Module):
        raise UsageError(f"Loading a network: {factory} gave a {type(model).__name__}, not a torch.nn.Module.")
    return model


def _fill(model: nn.Module, path: Path, factory: str) -> None:
    try:
        state = load_file(path)
        model.load_state_dict(state)
    except (OSError, SafetensorError) as error:
        raise FileFormatError(
            f"Reading the weights {path}: {(str(error).splitlines() or [''])[0]}. Give a state_dict that "
            "safetensors.torch.save_file has written."
        ) from error
    except RuntimeError as error:
        detail = str(error).splitlines()[-1].strip()
        raise FileFormatError(
            f"Reading the weights {path}: they do not fit the network of {factory}. {detail}"
        ) from error
