"""`ratenorm diagnose`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ratenorm.cli.options import data_config


@dataclass(frozen=True)
class Diagnose:
    """Say where a converted network loses accuracy, layer by layer, and what to try. Uses training images only."""

    network: Annotated[Path, tyro.conf.Positional]
    """network file, trained with Rate Norm or ReLU"""
    method: str = "trained"
    """thresholds, as for `ratenorm convert`"""
    v0: float = 0.0
    """membrane potential at the start, as a fraction of the threshold"""
    steps: int = 32
    """the T at which accuracy is missing"""
    data: str | None = None
    """images (default: the set the network was trained on)"""
    root: Path | None = None
    """where the data set lies"""
    images: int = 200
    """images to measure on"""
    calibration: int = 1000
    """images for methods that need some"""

    def run(self) -> None:
        import torch

        from ratenorm.convert.convert import convert
        from ratenorm.convert.thresholds import parse
        from ratenorm.data import Batches, split_holdout
        from ratenorm.diagnose import diagnose
        from ratenorm.io.networks import load_network
        from ratenorm.workflows.calibration import calibration_images

        model, spec = load_network(self.network)
        data = data_config(self.data or spec.dataset, self.root)
        method = parse(self.method)
        given = calibration_images(data, spec, self.calibration) if method.needs_data else None
        conversion = convert(model, method, example=torch.zeros(1, *spec.input_shape), calibration=given, v0=self.v0)
        held_out = split_holdout(data.train(), self.images, seed=1)[1]
        images, labels = next(iter(Batches(held_out, len(held_out), normalise=spec.normalisation)))
        print(diagnose(conversion, images, labels, self.steps))
