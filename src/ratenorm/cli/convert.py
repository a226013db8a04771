"""`ratenorm convert`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ratenorm.cli.options import data_config, mode, network_file
from ratenorm.simulate.engine_name import EngineName

if TYPE_CHECKING:
    from torch import nn

    from ratenorm.convert.convert import Conversion
    from ratenorm.distributed import World
    from ratenorm.io.networks import NetworkSpec
    from ratenorm.workflows.data import DataConfig


@dataclass(frozen=True)
class Sweep:
    """Search instead of naming a method; may change."""

    max_loss: float | None = None
    """instead of --method: try several lambda, p and v0, and keep the fastest network within this many points of the
    ANN; finished settings are kept in a folder beside --out, called like it with .sweep at the end
    """
    engine: EngineName = "auto"
    """with --max-loss: what simulates: auto, dense or event"""


@dataclass(frozen=True)
class Convert:
    """Convert a trained network file into a spiking one. For your own nn.Module use ratenorm.convert in Python."""

    network: Annotated[Path, tyro.conf.Positional]
    """network file, for example runs/a/stage2.safetensors, an ONNX file (with --data), or a name of the zoo"""
    out: Path
    """spiking network file to write"""
    method: str = "recommended"
    """thresholds: recommended (trained ones of a Rate Norm network, else omega:2.3), trained, max, percentile:99.9,
    omega:2.3, channel, spike:64, scaled:0.8:spike, data, model, fixed:1.0
    """
    v0: float | None = None
    """membrane potential at the start, as a fraction of the threshold: 0 as in the paper, 0.5 to round spike counts
    instead of flooring them (default: 0.5 with the recommended thresholds, else 0)
    """
    calibrate: tuple[str, ...] = ()
    """calibrate after conversion for the first --steps steps, on unlabelled training images: step-bias, channel-bias,
    start-potential; several follow one another
    """
    steps: int | None = None
    """with --calibrate: the time-steps to calibrate for (default: 4); with --max-loss: the most steps to look at
    (default: 128)
    """
    data: str | None = None
    """calibration images for methods that need some (default: the set the network was trained on)"""
    root: Path | None = None
    """where the data set lies"""
    images: int = 1000
    """training images for thresholds that need some; --calibrate takes the first 600 of them"""
    model: str | None = None
    """your own network as package.module:function, called without arguments; the file then holds its state_dict, and
    --data its images
    """
    max_pool: Literal["gated", "average"] = "gated"
    """max-pooling by accumulated counts, or replaced by average pooling"""
    resume: bool = False
    """with --max-loss: resume an earlier sweep, or choose by another loss from a finished one"""
    overwrite: bool = False
    """replace the file if it is there, and sweep again"""
    json: bool = False
    """print JSON instead of text"""
    verbose: Annotated[bool, tyro.conf.arg(aliases=["-v"])] = False
    """print the whole support report"""
    experimental: Sweep = field(default_factory=Sweep)

    def run(self) -> None:
        from ratenorm.distributed import joined
        from ratenorm.errors import UsageError
        from ratenorm.io.files import check_writable, to_json
        from ratenorm.io.spiking import save
        from ratenorm.workflows.convert import about_conversion, clipping_lines, summary
        from ratenorm.workflows.data import held_out_split
        from ratenorm.workflows.own_network import load_any

        self._check()
        if self.out.exists() and not self.overwrite and not self.resume:
            raise UsageError(f"Writing {self.out}: it is there already. Give another name, or --overwrite.")
        check_writable(self.out)
        file = network_file(self.network)
        known = None if self.data is None else data_config(self.data, self.root)
        model, spec = load_any(file, self.model, known)
        spec = replace(spec, held_out=held_out_split(spec, file))
        with joined() as here:  # under torchrun each process calibrates on its part of the images
            conversion = self._convert(model, spec, here)
            if here.writer:
                save(conversion.net, self.out, about_conversion(conversion, spec, self._calibrated_on(spec)))
                if self.json:
                    print(to_json({"file": str(self.out), **about_conversion(conversion, spec)}))
                    return
                print(conversion.report if self.verbose else conversion.report.summary())
                print(f"\n{summary(conversion)}")
                name = self.data or spec.dataset
                print("\n".join(clipping_lines(conversion, spec, lambda: data_config(name, self.root))))
                print(
                    f"{self.out}: {sum(conversion.net.neurons.values()):,} spiking neurons in "
                    f"{len(conversion.net.populations)} populations, {self.out.stat().st_size / 1e6:.2f} MB"
                )

    def _calibrated_on(self, spec: NetworkSpec) -> str | None:
        """The fingerprint of a folder that was given."""
        from ratenorm.workflows.data import fingerprint_of

        if self.data is None:
            return None
        data = data_config(self.data, self.root)
        return None if data.folder is None else fingerprint_of(data, data.of(spec).train())

    def _check(self) -> None:
        from ratenorm.errors import UsageError
        from ratenorm.workflows.sweep import check_loss

        if self.experimental.max_loss is not None:
            check_loss(self.experimental.max_loss)
        elif self.resume:
            raise UsageError("--resume goes on with a sweep (--max-loss); any other conversion is done in one piece.")
        if self.model is not None and self.data is None:
            raise UsageError(
                f"Converting {self.model}: name its images with --data, for its classes and normalisation."
            )
        if self.experimental.max_loss is not None and self.network.suffix == ".onnx":
            raise UsageError("--max-loss sweeps a network file of ratenorm; it cannot take an ONNX file.")
        if self.experimental.max_loss is not None and self.model is not None:
            raise UsageError("--max-loss sweeps a network file of ratenorm; it cannot take --model.")
        if self.experimental.max_loss is not None and self.calibrate:
            raise UsageError("--max-loss chooses among thresholds without calibration; leave --calibrate out.")
        if self.steps is not None and self.experimental.max_loss is None and not self.calibrate:
            raise UsageError("--steps belongs to --calibrate or to --max-loss; give one of them, or leave it out.")

    def _convert(self, model: nn.Module, spec: NetworkSpec, here: World) -> Conversion:
        from ratenorm.calibrators.recipe import DEFAULT_STEPS, Recipe, parse_recipe
        from ratenorm.workflows.convert import convert_with

        name = self.data or spec.dataset  # looked for only where images are needed
        if self.experimental.max_loss is not None:
            return self._sweep(self.experimental.max_loss, data_config(name, self.root), here)
        text = "+".join((self.method, *self.calibrate))
        read = parse_recipe(text, DEFAULT_STEPS if self.steps is None else self.steps)
        recipe = Recipe(text, read.method, read.v0 if self.v0 is None else self.v0, read.calibrations)
        return convert_with(
            recipe, model, spec, lambda: data_config(name, self.root), self.images, max_pool=self.max_pool
        )

    def _sweep(self, max_loss: float, data: DataConfig, here: World) -> Conversion:
        from ratenorm.distributed import wait_for_all
        from ratenorm.io.run_folder import open_shared
        from ratenorm.workflows.sweep_file import SweepConfig, sweep_file

        config = SweepConfig(
            str(network_file(self.network)),
            data,
            self.images,
            self.steps or 128,
            self.max_pool,
            self.experimental.engine,
        )
        place = self.out.with_name(f"{self.out.name}.sweep")
        with open_shared(place, mode(self.resume, self.overwrite), here.writer, wait_for_all) as folder:
            if here.writer:
                print(f"Every finished setting is kept in {place}: --resume goes on from there.", file=sys.stderr)
            sweep = sweep_file(config, max_loss, folder)
        if here.writer:
            print(sweep)
        return sweep.best
