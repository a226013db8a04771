"""After how many steps BatchNorm's statistics should be taken (`train --settle`): tried on a network of the zoo.

    python benchmarks/settling.py vgg16-cifar10 [--settle 0 128 64 32] [--steps 256] [--images 2000]
                                  [--out benchmarks/results/settling.json]

The weights stay, the statistics are taken anew for each number (0: of the limit), and the network before and after
conversion answers training images that it has not learned from. No test image is looked at.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paper.presets import named
from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import Trained
from ratenorm.core.energy import steps_to
from ratenorm.core.rate_norm import set_p_
from ratenorm.data import Batches
from ratenorm.io import zoo
from ratenorm.io.networks import load_network
from ratenorm.train.settle import settle_
from ratenorm.train.stage1 import hold_out, stage_batches
from ratenorm.workflows.data import DataConfig
from ratenorm.workflows.environment import hardware, versions
from ratenorm.workflows.evaluate import watched_evaluation
from ratenorm.workflows.train import TrainConfig, held_out_images, test_accuracy, training_images

COLUMNS = (16, 32, 64, 128, 256)  # of Table 2
NEAR = 0.01  # within a point of the network before conversion


def cross_entropy(model: nn.Module, batches: Batches) -> float:
    """Finer than accuracy, where images are few."""
    model.eval()
    with torch.inference_mode():
        pairs = [(nn.functional.cross_entropy(model(x), y, reduction="sum"), len(y)) for x, y in batches]
    return float(sum(loss for loss, _ in pairs)) / sum(count for _, count in pairs)


def tried(file: Path, config: TrainConfig, settle: int, steps: int, images: int) -> dict[str, Any]:
    """One number: how accurate the network is before conversion, and after each step of the spiking one."""
    model, spec = load_network(file)
    set_p_(model, 1.0)
    stage1 = config.stage1
    learned, _ = hold_out(training_images(config), stage1.holdout, stage1.seed)
    batches, _ = stage_batches(learned, None, stage1.batch_size, stage1.seed, spec.normalisation, stage1.augment)
    settle_(model, batches, settle or None, stage1.epochs)
    unseen = held_out_images(config, images)
    ann = test_accuracy(model, spec, unseen)
    entropy = cross_entropy(model, Batches(unseen, 250, normalise=spec.normalisation))
    net = convert(model, Trained(), example=torch.zeros(1, *spec.input_shape)).net
    name = f"settled at {settle or 'the limit'}"
    options: dict[str, Any] = {"fit_images": 0, "batch_size": 100, "folder": None}
    accuracy = watched_evaluation(name, net, unseen, spec, steps, "auto", **options).accuracy
    columns = [t for t in COLUMNS if t <= steps]
    return {
        "settle": settle or None,
        "ann_accuracy": ann,
        "ann_cross_entropy": entropy,
        "within_a_point": steps_to(accuracy, ann - NEAR - 1e-9),
        "mean_over_columns": sum(accuracy[t - 1] for t in columns) / len(columns),
        "accuracy": accuracy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help="a preset whose network the zoo has")
    parser.add_argument("--settle", type=int, nargs="+", default=[0, 128, 64, 32])
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/settling.json"))
    args = parser.parse_args()
    preset, file = named(args.network), zoo.path_of(args.network)
    stage1 = replace(preset.rnl, seed=0, teacher=None)  # nothing is trained
    config = TrainConfig(preset.model, "rate_norm", DataConfig(preset.data), stage1, None)
    figures: dict[str, Any] = {"network": args.network, "held_out_images": args.images, "columns": COLUMNS, "seed": 0}
    figures |= {"versions": versions(), "hardware": hardware(), "tried": []}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for settle in args.settle:
        row = tried(file, config, settle, args.steps, args.images)
        print(
            f"settle {settle}: ANN {row['ann_accuracy']:.2%}, cross entropy {row['ann_cross_entropy']:.4f}; spiking "
            f"within a point after {row['within_a_point']} steps, mean over the columns {row['mean_over_columns']:.2%}"
        )
        figures["tried"].append(row)  # written each time: minutes of work
        args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
