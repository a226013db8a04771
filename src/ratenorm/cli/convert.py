"""`ratenorm convert`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ratenorm.cli.options import data_config, mode
from ratenorm.simulate.simulate import EngineName

if TYPE_CHECKING:
    from torch import nn

    from ratenorm.convert.convert import Conversion
    from ratenorm.distributed import World
    from ratenorm.io.networks import NetworkSpec
    from ratenorm.workflows.train import DataConfig


@dataclass(frozen=True)
class Convert:
    """Convert a trained network file into a spiking one. For your own nn.Module use ratenorm.convert in Python."""

    network: Annotated[Path, tyro.conf.Positional]
    """network file, for example runs/a/stage2.safetensors"""
    out: Path
    """spiking network file to write"""
    method: str = "trained"
    """thresholds: trained, max, percentile:99.9, channel, spike:64, scaled:0.8:spike, data, model, fixed:1.0"""
    v0: float = 0.0
    """membrane potential at the start, as a fraction of the threshold (0: the paper, 0.5: rounds instead of
    flooring)
    """
    data: str | None = None
    """calibration images for methods that need some (default: the set the network was trained on)"""
    root: Path | None = None
    """where the data set lies"""
    images: int = 1000
    """calibration images, from the training set"""
    max_loss: float | None = None
    """instead of --method: sweep lambda, p and v0 and keep the fastest network within this many points of the ANN;
    finished settings are kept in a folder beside --out, called like it with .sweep at the end
    """
    steps: int = 128
    """with --max-loss: the most steps to look at"""
    engine: EngineName = "auto"
    """with --max-loss: what simulates: auto, dense or event"""
    max_pool: Literal["gated", "average"] = "gated"
    """max-pooling by accumulated counts, or replaced by average pooling"""
    resume: bool = False
    """with --max-loss: go on where an earlier sweep stopped, or choose by another loss from a finished one"""
    overwrite: bool = False
    """replace the file if it is there, and sweep anew"""

    def run(self) -> None:
        from ratenorm.distributed import joined
        from ratenorm.errors import UsageError
        from ratenorm.io.files import check_writable
        from ratenorm.io.networks import load_network
        from ratenorm.io.spiking import save
        from ratenorm.workflows.sweep import check_loss

        if self.max_loss is not None:
            check_loss(self.max_loss)
        elif self.resume:
            raise UsageError("--resume goes on with a sweep (--max-loss); any other conversion is done in one piece.")
        if self.out.exists() and not self.overwrite and not self.resume:
            raise UsageError(f"Writing {self.out}: it is there already. Give another name, or --overwrite.")
        check_writable(self.out)
        model, spec = load_network(self.network)
        with joined() as here:  # under torchrun each process calibrates on its part of the images
            conversion = self._convert(model, spec, here)
            if here.writer:
                about = {"spec": spec.to_json(), "method": conversion.method.to_json(), "v0": conversion.v0}
                save(conversion.net, self.out, about)
                print(conversion.report)
                print(
                    f"\n{self.out}: {sum(conversion.net.neurons.values()):,} spiking neurons in "
                    f"{len(conversion.net.populations)} populations, {self.out.stat().st_size / 1e6:.2f} MB"
                )

    def _convert(self, model: nn.Module, spec: NetworkSpec, here: World) -> Conversion:
        import torch

        from ratenorm.convert.calibration import Calibration
        from ratenorm.convert.convert import convert
        from ratenorm.convert.thresholds import parse
        from ratenorm.workflows.calibration import calibration_images

        example = torch.zeros(1, *spec.input_shape)
        name = self.data or spec.dataset  # looked for only where images are needed
        if self.max_loss is not None:
            return self._sweep(self.max_loss, data_config(name, self.root), here)
        method = parse(self.method)
        images = None
        if method.needs_data:
            chosen = calibration_images(data_config(name, self.root), spec, self.images)
            images = Calibration(chosen[here.rank :: here.size], shared=True)
        return convert(model, method, example=example, calibration=images, v0=self.v0, max_pool=self.max_pool)

    def _sweep(self, max_loss: float, data: DataConfig, here: World) -> Conversion:
        from ratenorm.distributed import wait_for_all
        from ratenorm.io.run_folder import open_shared
        from ratenorm.workflows.sweep_file import SweepConfig, sweep_file

        config = SweepConfig(str(self.network), data, self.images, self.steps, self.max_pool, self.engine)
        place = self.out.with_name(f"{self.out.name}.sweep")
        with open_shared(place, mode(self.resume, self.overwrite), here.writer, wait_for_all) as folder:
            if here.writer:
                print(f"Every finished setting is kept in {place}: --resume goes on from there.", file=sys.stderr)
            sweep = sweep_file(config, max_loss, folder)
        if here.writer:
            print(sweep)
        return sweep.best
