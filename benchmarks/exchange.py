"""Networks of the zoo in other simulators: every spike of every layer and step, compared with ours.

    python benchmarks/exchange.py [--networks cnn7-mnist …] [--readers spikingjelly …] [--images 100] [--steps 32]
                                  [--out benchmarks/results/exchange.json]

Needs the environment of `make .venv-peers/installed`. Each network is written as a NIR file, read by the simulator's
own importer, and run twice: as it was imported, and with what `ratenorm.interop` sets. Rows that are in the result file
already are kept, unless --again is given.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ratenorm as rn
from ratenorm.core.rate_norm import rate_norm_layers
from ratenorm.data import load
from ratenorm.errors import RatenormError
from ratenorm.interop.checking import SIMULATORS, compare
from ratenorm.io import zoo
from ratenorm.workflows.environment import hardware, versions
from ratenorm.workflows.fingerprint import of_graph

MAIN = ("cnn7-mnist", "alexnet-mnist", "preact_resnet20-cifar10", "vgg16-cifar10")
PEERS = ("spikingjelly", "sinabs", "snntorch", "nir", "nirtorch")


def network(name: str, images: int) -> tuple[rn.Conversion, Tensor]:
    """A network of the zoo, converted as `rn.convert` does without being told how; and test images for it."""
    model, spec = zoo.load(name)
    x = spec.normalisation(load(spec.dataset, "test").images[:images].float() / 255)
    seen = None
    if not any(rate_norm_layers(model)):
        seen = spec.normalisation(load(spec.dataset, "train").images[:200].float() / 255)
    return rn.convert(model, example=x[:1], calibration=seen), x


def row(name: str, reader: str, images: int, steps: int, batch: int) -> dict[str, Any]:
    """One network in one simulator."""
    conversion, x = network(name, images)
    found: dict[str, Any] = {"network": name, "reader": reader, "images": len(x), "steps": steps}
    with tempfile.TemporaryDirectory() as folder:
        file = rn.export_nir(conversion, Path(folder) / "net.nir", warn=False)
        again = rn.import_nir(file.path)
        found["nir"] = {"nodes": file.nodes, "edges": file.edges, "bytes": file.path.stat().st_size}
        found["round_trip"] = of_graph(again) == of_graph(conversion.net)
        began = time.monotonic()
        found["with_adapter"] = compare(SIMULATORS[reader](file.path), x, steps, batch=batch).to_json()
        found["seconds"] = time.monotonic() - began
        few = x[: min(10, len(x))]
        try:
            plain = compare(SIMULATORS[reader](file.path, settings=False), few, steps, batch=batch)
            found["as_imported"] = plain.to_json()
        except (RatenormError, RuntimeError, TypeError, ValueError) as error:
            found["as_imported"] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=[*MAIN, *(n for n in zoo.names() if n not in MAIN)])
    parser.add_argument("--readers", nargs="+", default=list(SIMULATORS), choices=list(SIMULATORS))
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--again", action="store_true", help="measure rows again that are in the result file")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/exchange.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, dict[str, Any]] = {}
    if args.out.exists() and not args.again:
        rows = {f"{r['network']} {r['reader']}": r for r in json.loads(args.out.read_text("utf-8"))["rows"]}
    for name in args.networks:
        for reader in args.readers:
            known = rows.get(f"{name} {reader}")
            if known and (known["images"], known["steps"]) == (args.images, args.steps):
                continue
            found = rows[f"{name} {reader}"] = row(name, reader, args.images, args.steps, args.batch)
            checked = found["with_adapter"]
            verdict = (
                "equal" if checked["different"] == 0 else f"{checked['different']} differ, first {checked['first']}"
            )
            print(
                f"{name:32} {reader:13} {checked['spikes']:>13,} spikes  {verdict}  {found['seconds']:.0f} s",
                flush=True,
            )
            figures = {"rows": list(rows.values()), "versions": versions() | {p: version(p) for p in PEERS}}
            figures |= {"hardware": hardware()}
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
