"""`ratenorm export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ratenorm.cli.options import data_config, network_file

if TYPE_CHECKING:
    from torch import Tensor

    from ratenorm.graph.net import SpikingNet
    from ratenorm.interop.checking import Comparison
    from ratenorm.interop.chips import Fit


@dataclass(frozen=True)
class Export:
    """Write a spiking network for other simulators (NIR) or for hardware (tables of whole numbers), and check it.

    The network may be a NIR file itself: `--to safetensors` turns it into a spiking network file of ratenorm.
    """

    network: Annotated[Path, tyro.conf.Positional]
    """spiking network file, written by `ratenorm convert`, or a NIR file (.nir)"""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """file to write; for tables a folder (default: nothing is written, for --check or --chip alone)"""
    to: Literal["nir", "tables", "safetensors"] = "nir"
    """what to write: nir, tables (NumPy files with a simulator in plain NumPy), or safetensors (ratenorm's own)"""
    pools: Literal["fold", "sum", "average"] = "fold"
    """average pools in NIR: fold them into weights (every reader), sum (sinabs) or average (SpikingJelly, snnTorch)"""
    check: tuple[Literal["spikingjelly", "sinabs", "snntorch"], ...] = ()
    """run the network in these simulators too, and compare every spike; several may be named"""
    images: int = 100
    """test images for --check"""
    steps: int = 32
    """time-steps for --check"""
    data: str | None = None
    """images for --check (default: the set the network was trained on)"""
    root: Path | None = None
    """where the data set lies"""
    chip: tuple[str, ...] = ()
    """estimate how the network fits: loihi2, spinnaker2, generic, or a JSON file that describes a chip"""
    reset: Literal["subtract"] | None = None
    """of a NIR file of others: its neurons subtract their threshold"""
    dt: float | None = None
    """of a NIR file of others: the length of a step"""
    overwrite: bool = False
    """replace what is there"""
    json: bool = False
    """print JSON instead of tables"""

    def run(self) -> None:
        from ratenorm.errors import SimulationError, UsageError
        from ratenorm.interop.extras import needed
        from ratenorm.io.files import check_writable, to_json

        if self.out is None and not self.check and not self.chip:
            raise UsageError("Exporting: nothing is asked for. Name a file with --out, or give --check or --chip.")
        if self.images < 1 or self.steps < 1:
            raise UsageError("Exporting: --images and --steps must be at least 1.")
        if self.out is not None and self.to != "tables":
            if self.out.exists() and not self.overwrite:
                raise UsageError(f"Writing {self.out}: it is there already. Give another name, or --overwrite.")
            check_writable(self.out)
        for name in self.check:
            needed(name)  # before any work
        net, about = self._read()
        images = self._images(about) if self.check else None
        written = self._written(net, about)
        fits = [self._fit(net, chip) for chip in self.chip]
        found = [] if images is None else [self._checked(net, name, images) for name in self.check]
        if self.json:
            print(
                to_json(
                    {"written": written, "fits": [f.to_json() for f in fits], "checks": [c.to_json() for c in found]}
                )
            )
        if different := [one.simulator for one in found if not one.equal]:
            raise SimulationError(
                f"Checking {self.network}: spikes differ in {', '.join(different)}. What was asked for is written; do "
                "not use it there before the first difference is understood."
            )

    def _read(self) -> tuple[SpikingNet, dict[str, Any]]:
        from ratenorm.errors import UsageError

        if self.network.suffix == ".nir":
            from ratenorm.interop.nir_import import import_nir_with_about

            return import_nir_with_about(self.network, reset=self.reset, dt=self.dt)
        if self.reset is not None or self.dt is not None:
            raise UsageError(f"--reset and --dt are for NIR files of others; {self.network} is none (.nir).")
        from ratenorm.io.spiking import load_with_about

        return load_with_about(network_file(self.network))

    def _images(self, about: dict[str, Any]) -> Tensor:
        from ratenorm.workflows.evaluate import spec_of

        spec = spec_of(about, str(self.network))
        images = data_config(self.data or spec.dataset, self.root).of(spec).test()
        few = images.images[: self.images]
        return spec.normalisation(few.float() / 255)

    def _say(self, text: object) -> None:
        if not self.json:
            print(text)

    def _written(self, net: SpikingNet, about: dict[str, Any]) -> dict[str, Any] | None:
        """Write what was asked for; what there is to say of it."""
        if self.out is None:
            return None
        if self.to == "nir":
            from ratenorm.interop.nir_export import export_nir

            file = export_nir(net, self.out, pools=self.pools, about=about, warn=False)
            self._say(file)
            return {"file": str(self.out), "nodes": file.nodes, "edges": file.edges, "notes": list(file.notes)}
        if self.to == "tables":
            from ratenorm.interop.tables import export_tables

            tables = export_tables(net, self.out, overwrite=self.overwrite)
            self._say(f"{tables}\nRun them with NumPy alone: python {self.out}/simulate.py images.npy 32 logits.npy")
            return {"folder": str(self.out), "layers": len(tables.index["units"]), "bytes": tables.index["bytes"]}
        from ratenorm.io.spiking import save

        self._say(f"{save(net, self.out, about)}: {net!r}")
        return {"file": str(self.out)}

    def _fit(self, net: SpikingNet, chip: str) -> Fit:
        from ratenorm.interop.chips import chip_fit

        fit = chip_fit(net, chip)
        self._say(fit)
        return fit

    def _checked(self, net: SpikingNet, name: str, images: Tensor) -> Comparison:
        from ratenorm.interop.checking import check

        network: Any = self.out if self.to == "nir" and self.out is not None and self.pools == "fold" else net
        found = check(network, name, images, self.steps)
        self._say(found)
        return found
