"""`ratenorm diagnose`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from ratenorm.cli.options import data_config, network_file


@dataclass(frozen=True)
class Diagnose:
    """Say where a converted network loses accuracy, layer by layer, and what to try. Uses training images only."""

    network: Annotated[Path, tyro.conf.Positional]
    """network file, trained with Rate Norm or ReLU"""
    model: str | None = None
    """your own network as package.module:function, called without arguments; the file then holds its state_dict, and
    --data its images
    """
    method: str = "recommended"
    """thresholds, as for `ratenorm convert`"""
    v0: float | None = None
    """membrane potential at the start, as a fraction of the threshold (default: as for `ratenorm convert`)"""
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
    json: bool = False
    """print JSON instead of text"""

    def run(self) -> None:
        from ratenorm.calibrators.recipe import parse_recipe
        from ratenorm.data import Batches
        from ratenorm.diagnose import diagnose
        from ratenorm.io.files import to_json
        from ratenorm.workflows.convert import convert_with
        from ratenorm.workflows.data import held_out_split, images_to_choose_by
        from ratenorm.workflows.own_network import load_any

        known = None if self.data is None else data_config(self.data, self.root)
        model, spec = load_any(network_file(self.network), self.model, known)
        data = data_config(self.data or spec.dataset, self.root)
        recipe = parse_recipe(self.method)
        recipe = recipe if self.v0 is None else replace(recipe, v0=self.v0)
        conversion = convert_with(recipe, model, spec, lambda: data, self.calibration)
        split = held_out_split(spec, network_file(self.network))
        held_out, what = images_to_choose_by(data.of(spec).train(), split, self.images, seed=1)
        images, labels = next(iter(Batches(held_out, len(held_out), normalise=spec.normalisation)))
        found = diagnose(conversion, images, labels, self.steps)
        if self.json:
            print(to_json({**found.to_json(self.method), "measured_on": what}))
            return
        print(found)
        print(f"Measured on {what}.")
