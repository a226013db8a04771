"""How accurate a network is after 1, 2, 4, 8, 16 and 32 steps, for each way to convert it, on held-out training images.

    python benchmarks/few_steps.py [--networks vgg16-cifar10-relu …] [--conversions recommended max …] [--test]
                                   [--out benchmarks/results/few_steps.json]

Choices are made on the images that a network's training held out. `--test` asks all test images instead, for the last
figure of a network and conversion: the answer is written to the file, and a question that it holds is not asked again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ratenorm.calibrators.recipe import Recipe, parse_recipe
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.fold import fold
from ratenorm.convert.lower import lower
from ratenorm.data import Batches, ImageSet, load
from ratenorm.graph.net import Graph, SpikingNet, run
from ratenorm.io import zoo
from ratenorm.io.files import write_atomic
from ratenorm.io.networks import NetworkSpec
from ratenorm.simulate.simulate import simulate
from ratenorm.workflows.calibration import calibration_images
from ratenorm.workflows.convert import CALIBRATION_IMAGES
from ratenorm.workflows.data import DataConfig, held_out_split, images_to_choose_by
from ratenorm.workflows.environment import hardware, versions

STEPS = (1, 2, 4, 8, 16, 32)
NETWORKS = ("vgg16-cifar10-relu", "preact_resnet20-cifar10-relu", "alexnet-mnist-relu", "cnn7-mnist-relu")
CONVERSIONS = (
    "max",
    "max/0.5",
    "percentile:99.9/0.5",
    "percentile:99/0.5",
    "channel/0.5",
    "omega:2.3",
    "omega:2.3/0.5",
    "omega:2/0.5",
    "gaussian:4/0.5",
    "local/0.5",
    "latency:0.1/0.5",
    "omega:2.3/0.5+step-bias@8",
    "omega:2/0.5+step-bias@8",
    "omega:2.3/0.5+channel-bias@8",
    "omega:2.3/0.5+start-potential@8",
    "local/0.5+step-bias@8",
    "percentile:99/0.5+step-bias@8",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--conversions", nargs="+", default=list(CONVERSIONS))
    parser.add_argument("--images", type=int, default=5000, help="held-out images at most")
    parser.add_argument("--test", action="store_true", help="ask all test images, once for each conversion")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/few_steps.json"))
    given = parser.parse_args()
    kept: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {"seed": 0, "rows": []}
    for name in given.networks:
        model, spec = zoo.load(name)
        images = _images(spec, zoo.path_of(name), given.images, given.test)
        analog = fold(lower(model, torch.zeros(1, *spec.input_shape))[0])
        for text in given.conversions:
            key = {"network": name, "conversion": text, "images": len(images), "test": given.test}
            if any(all(row[k] == v for k, v in key.items()) for row in kept["rows"]):
                continue
            row = key | _measured(parse_recipe(text), model, analog, spec, images)
            row |= {"hardware": hardware(), "versions": versions()}
            kept["rows"].append(row)
            write_atomic(given.out, (json.dumps(kept, indent=1, ensure_ascii=False) + "\n").encode())
            losses = " ".join(f"{100 * (row['ann'] - row['accuracy'][str(t)]):7.2f}" for t in STEPS)
            print(f"{name:<30}{text:<36}{100 * row['ann']:6.2f} loss {losses}  {row['seconds']:.0f} s", flush=True)


def _images(spec: NetworkSpec, file: Path, count: int, test: bool) -> ImageSet:
    if test:
        return load(spec.dataset, "test")
    return images_to_choose_by(load(spec.dataset, "train"), held_out_split(spec, file), count, 0)[0]


def _measured(recipe: Recipe, model: Any, analog: Graph, spec: NetworkSpec, images: ImageSet) -> dict[str, Any]:
    given = calibration_images(DataConfig(spec.dataset), spec, 1000)
    began = time.monotonic()
    made = recipe.apply(
        analog,
        Calibration(given),
        lower(model, torch.zeros(1, *spec.input_shape))[1],
        calibration_images=Calibration(given[:CALIBRATION_IMAGES]),
    )
    seconds = time.monotonic() - began
    right, spikes = _counted(made.net, spec, images)
    ann = sum(
        int((run(analog, x).argmax(-1) == y).sum()) for x, y in Batches(images, 200, normalise=spec.normalisation)
    )
    count = len(images)
    return {
        "ann": ann / count,
        "accuracy": {str(t): float(right[t - 1]) / count for t in STEPS},
        "spikes": {str(t): float(spikes[:t].sum()) / count for t in STEPS},
        "neurons": sum(made.net.neurons.values()),
        "seconds": seconds,
    }


def _counted(net: SpikingNet, spec: NetworkSpec, images: ImageSet) -> tuple[Tensor, Tensor]:
    """How many images are right after each step, and how many spikes each step has."""
    right, spikes = torch.zeros(max(STEPS), dtype=torch.int64), torch.zeros(max(STEPS), dtype=torch.float64)
    for x, y in Batches(images, 100, normalise=spec.normalisation):
        result = simulate(net, x, max(STEPS))
        right += (result.logits.argmax(-1) == y).sum(1)
        spikes += torch.stack([layer.spikes for layer in result.layers]).sum(0).double()
    return right, spikes


if __name__ == "__main__":
    with torch.no_grad():
        main()
