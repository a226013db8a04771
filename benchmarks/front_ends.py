"""Networks through torch.fx, torch.export and ONNX: the same spikes?

    python benchmarks/front_ends.py [--out benchmarks/results/front_ends.json]

Needs the environment of `make .venv-onnx/installed`. Every architecture of tests/strangers, with random weights, is
converted three times with the same thresholds and run on the same images; every spike count and output is compared. The
ONNX file is written by torch.onnx.export without fusing BatchNorm, which rounds weights once more.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ratenorm as rn
from ratenorm.convert.exported import replayed
from ratenorm.errors import RatenormError
from ratenorm.workflows.environment import hardware, versions

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from strangers.architectures import ARCHITECTURES, shape_of, stranger

IMAGES, STEPS, THRESHOLD = 8, 16, "fixed:0.5"


def same(model: nn.Module, usual: rn.SimResult, x: Tensor) -> dict[str, Any]:
    """Whether a network gives every spike count and output of the one that torch.fx followed."""
    result = rn.simulate(rn.convert(model, THRESHOLD, example=x[:1], v0=0.5), x, STEPS)
    pairs = list(zip(usual.layers, result.layers, strict=True))
    different = sum(int((a.counts != b.counts).sum()) for a, b in pairs)
    return {
        "populations": len(pairs),
        "neurons": sum(a.counts.numel() for a, _ in pairs),
        "different_counts": different,
        "outputs_equal": torch.equal(usual.logits, result.logits),
        "largest_output_difference": float((usual.logits - result.logits).abs().max()),
    }


def through_onnx(model: nn.Module, x: Tensor, folder: Path) -> nn.Module:
    """The network after a journey through an ONNX file."""
    file = folder / "network.onnx"
    torch.onnx.export(
        model,
        (x[:2],),
        str(file),
        dynamo=False,
        opset_version=17,
        input_names=["input"],
        dynamic_axes={"input": {0: "batch"}},
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
    )
    return rn.load_onnx(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(ARCHITECTURES))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/front_ends.json"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rows = []
    for name in args.networks:
        model, x = stranger(name), torch.rand(IMAGES, *shape_of(name), generator=torch.Generator().manual_seed(1))
        usual = rn.simulate(rn.convert(model, THRESHOLD, example=x[:1], v0=0.5), x, STEPS)
        row: dict[str, Any] = {"network": name}
        with tempfile.TemporaryDirectory() as folder:
            for way, make in {
                "torch.export": lambda: replayed(model, x),  # noqa: B023
                "onnx": lambda: through_onnx(model, x, Path(folder)),  # noqa: B023
            }.items():
                try:
                    row[way] = same(make(), usual, x)
                except (RatenormError, RuntimeError, ValueError) as error:
                    row[way] = {"error": str(error).splitlines()[0][:300]}
        rows.append(row)
        shown = {way: "equal" if row[way].get("outputs_equal") and not row[way].get("different_counts") else row[way]
                 for way in ("torch.export", "onnx")}  # fmt: skip
        print(f"{name:20} {shown}", flush=True)
    figures = {"images": IMAGES, "steps": STEPS, "rows": rows, "versions": versions(), "hardware": hardware()}
    args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
