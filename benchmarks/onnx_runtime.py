"""The ANN as a user would run it - PyTorch, ONNX Runtime in float32 and int8 - beside the event engine, turn by turn.

    make onnx    (an environment of its own: onnx and onnxruntime are no dependencies)
    python benchmarks/onnx_runtime.py --network zoo/vgg16-cifar10.safetensors [--out …/onnx_runtime.json]

int8 is static quantization, weights per channel, calibrated on the images that are timed. All use as many threads.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor

from engine import best
from networks import subject
from ratenorm.graph.net import Graph, run
from ratenorm.io.networks import load_network
from ratenorm.simulate.simulate import simulate
from ratenorm.workflows.environment import hardware, versions

STEPS, BATCHES = (2, 4, 8, 16, 32), (1, 16)


class Images(CalibrationDataReader):  # type: ignore[misc]
    """Images one by one, as the quantizer wants them."""

    def __init__(self, x: Tensor) -> None:
        self._left = iter(x.split(1))

    def get_next(self) -> dict[str, Any] | None:
        found = next(self._left, None)
        return None if found is None else {"x": found.numpy()}


def sessions(file: Path, x: Tensor, folder: Path) -> dict[str, ort.InferenceSession]:
    """The network of a file in float32 and in int8."""
    model, _ = load_network(file)
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "n"}, "y": {0: "n"}}}
    torch.onnx.export(model.eval(), (x[:1],), str(folder / "float32.onnx"), dynamo=False, **names)
    quant_pre_process(str(folder / "float32.onnx"), str(folder / "ready.onnx"))
    kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "quant_format": QuantFormat.QDQ}
    quantize_static(str(folder / "ready.onnx"), str(folder / "int8.onnx"), Images(x), per_channel=True, **kinds)
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return {
        kind: ort.InferenceSession(str(folder / f"{kind}.onnx"), options, providers=["CPUExecutionProvider"])
        for kind in ("float32", "int8")
    }


def torch_forward(analog: Graph, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return run(analog, x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=Path, default=Path("zoo/vgg16-cifar10.safetensors"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--v0", type=float, default=0.5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/onnx_runtime.json"))
    args = parser.parse_args()
    what = subject("", args.network, max(BATCHES), v0=args.v0)
    net = what.conversion.net
    analog = what.conversion.analog.map_tensors(
        lambda t: t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        made = sessions(args.network, what.images, Path(folder))
        expected = torch_forward(analog, what.images).numpy()
        given = made["float32"].run(None, {"x": what.images.numpy()})[0]
        if not np.array_equal(given.argmax(1), expected.argmax(1)):
            raise SystemExit("ONNX Runtime and PyTorch give other answers: nothing was measured.")
        for batch in BATCHES:
            x = what.images[:batch].contiguous()
            last = x.contiguous(memory_format=torch.channels_last)
            jobs: dict[str, Any] = {"pytorch": partial(torch_forward, analog, last)}
            jobs |= {f"onnx {k}": partial(s.run, None, {"x": x.numpy()}) for k, s in made.items()}
            jobs |= {f"T = {steps}": partial(simulate, net, last, steps) for steps in STEPS}
            found = {name: 1e3 * seconds / batch for name, seconds in best(jobs, args.repeats).items()}
            rows.append({"batch": batch, "milliseconds_an_image": found})
            print(f"batch {batch}: " + ", ".join(f"{name} {ms:.2f}" for name, ms in found.items()) + " ms an image")
    figures = {**what.describe(), "v0": args.v0, "threads": torch.get_num_threads(), "rows": rows}
    figures |= {"onnxruntime": version("onnxruntime"), "versions": versions(), "hardware": hardware()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
