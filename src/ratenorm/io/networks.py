"""A trained network of ours as one file: which network it is, its weights, its thresholds, what it was fed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ratenorm import models
from ratenorm._version import __version__
from ratenorm.core.rate_norm import LARGEST_LEVELS, RateNorm, rate_norm_layers
from ratenorm.data import Normalisation
from ratenorm.errors import FileFormatError, UsageError
from ratenorm.io.files import read_tensors, write_tensors

FORMAT, VERSION = "ratenorm-network", 1
ACTIVATIONS = ("rate_norm", "relu")
LARGEST_SIZE = 2**16  # of an image's side, its channels, the number of classes


@dataclass(frozen=True)
class NetworkSpec:
    """What is needed to build a network again and to feed it: JSON-able."""

    model: str
    activation: str = "rate_norm"
    num_classes: int = 10
    channels: int = 3
    size: tuple[int, int] = (32, 32)
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    classes: tuple[str, ...] = ()
    dataset: str = ""
    levels: int | None = None  # of quantised Rate Norm layers
    trained_on: str | None = None  # fingerprint of the images, where they are a folder
    held_out: tuple[int, int] | None = None  # how many images the training held out, and the seed of that choice

    @property
    def input_shape(self) -> tuple[int, int, int]:
        return (self.channels, *self.size)

    @property
    def normalisation(self) -> Normalisation:
        """The transform of the images it was trained on."""
        return Normalisation(self.mean, self.std)

    def build(self) -> nn.Module:
        """The network with fresh weights, drawn from torch's global generator."""
        if self.activation not in ACTIVATIONS:
            raise UsageError(
                f"Building {self.model}: the activation is {self.activation!r}; it must be one of "
                f"{', '.join(ACTIVATIONS)}."
            )
        activation: Any = partial(RateNorm, levels=self.levels) if self.activation == "rate_norm" else nn.ReLU
        return models.build(self.model, activation=activation, num_classes=self.num_classes, channels=self.channels)

    def to_json(self) -> dict[str, Any]:
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}
        return {k: v for k, v in plain.items() if k not in ("levels", "held_out", "trained_on") or v is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NetworkSpec:
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        spec = cls(**given)
        spec._check()
        return spec

    def _check(self) -> None:
        """Refuse what no network of ours can be, before anything of that size is made."""
        texts = (self.model, self.activation, self.dataset, self.trained_on or "", *self.classes)
        whole = (self.num_classes, self.channels, *self.size)
        if not all(isinstance(t, str) for t in texts) or not all(type(n) is int for n in whole):
            raise ValueError("the spec's names must be texts and its sizes whole numbers")
        if self.levels is not None and (type(self.levels) is not int or not 1 <= self.levels <= LARGEST_LEVELS):
            raise ValueError(f"the spec's levels are {self.levels!r}; 1 to {LARGEST_LEVELS} are allowed")
        if self.held_out is not None and (len(self.held_out) != 2 or not all(type(n) is int for n in self.held_out)):
            raise ValueError(f"the spec's held-out images are {self.held_out!r}; two whole numbers are allowed")
        if len(self.size) != 2 or not all(1 <= n <= LARGEST_SIZE for n in whole):
            raise ValueError(f"the spec's sizes are {whole}; each must lie between 1 and {LARGEST_SIZE}")
        if len(self.mean) != self.channels or len(self.classes) not in (0, self.num_classes):
            raise ValueError(
                f"the spec has {len(self.mean)} means for {self.channels} channels and {len(self.classes)} names for "
                f"{self.num_classes} classes"
            )
        _ = self.normalisation  # one finite mean and positive std a channel


def save_network(path: str | os.PathLike[str], model: nn.Module, spec: NetworkSpec, *, half: bool = False) -> Path:
    """Write weights, statistics and thresholds. `half` stores weights as float16 (the zoo does)."""
    state = {
        name: t.half() if half and t.is_floating_point() and t.numel() > 1 else t
        for name, t in model.state_dict().items()
    }
    content = {
        "format": FORMAT,
        "version": VERSION,
        "ratenorm": __version__,
        "spec": spec.to_json(),
        "outputs": {name: layer.output for name, layer in rate_norm_layers(model)},
    }
    return write_tensors(path, state, content)


def load_network(path: str | os.PathLike[str]) -> tuple[nn.Module, NetworkSpec]:
    """The network in evaluation mode, and its spec. float16 weights come back as float32."""
    tensors, content = read_tensors(path, FORMAT, VERSION)
    try:
        spec = NetworkSpec.from_json(content["spec"])
        _check_shapes(spec, tensors)
        model = spec.build()
        for name, layer in rate_norm_layers(model):
            layer.output = content["outputs"][name]
            if layer.output not in ("rate", "activation"):
                raise ValueError(f"output of {name} is {layer.output!r}")
        wanted = model.state_dict()
        state = {
            name: t.to(wanted[name].dtype) if name in wanted and t.dtype == torch.float16 else t
            for name, t in tensors.items()
        }
        model.load_state_dict(state)
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, UsageError, AttributeError) as error:
        raise FileFormatError(
            f"Reading {path}: its weights do not fit the network it names "
            f"({(str(error).splitlines() or [type(error).__name__])[0][:200]}). Write it anew."
        ) from error
    return model.eval(), spec


def _check_shapes(spec: NetworkSpec, tensors: Mapping[str, Tensor]) -> None:
    """Compare with the network on the meta device, which takes no memory: a file of a few bytes that names a network of
    many gigabytes is refused before the gigabytes are asked for."""
    with torch.device("meta"):
        wanted = {name: t.shape for name, t in spec.build().state_dict().items()}
    if differing := sorted(n for n in {*wanted, *tensors} if n not in tensors or wanted.get(n) != tensors[n].shape):
        raise ValueError(f"{differing[0]!r} is missing, unknown or of another shape")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ValueError(f"{name!r} holds NaN or infinity")
