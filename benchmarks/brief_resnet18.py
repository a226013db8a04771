"""A PreActResNet-18 for the benchmarks until the zoo has one: five epochs on 20,000 CIFAR-10 images, most of them at
16x16 pixels, some 25 minutes on two cores.

    .venv/bin/python benchmarks/brief_resnet18.py [--out runs/bench]

Reduced scale: 69 % of the test images. Its firing rates are those of a trained network, its accuracy is not. It goes on
where it was stopped; `make bench` and `make peers` take it from there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ratenorm.data import AUGMENTS
from ratenorm.io.run_folder import RunFolder
from ratenorm.train.config import Stage1
from ratenorm.workflows.data import DataConfig
from ratenorm.workflows.train import TrainConfig, train_network

SCHEDULE = Stage1(
    epochs=5,
    lr=0.1,
    augment=AUGMENTS["cifar10"],
    label_smoothing=0.1,
    ema=0.98,
    holdout=1000,
    small_size=16,
    small_part=0.8,
    checkpoint_minutes=3,
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a PreActResNet-18 briefly, for the benchmarks.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    folder = parser.parse_args().out / "preact_resnet18-brief"
    config = TrainConfig("preact_resnet18", "relu", DataConfig("cifar10"), SCHEDULE, None, None, 20_000)
    begun = folder.is_dir() and any(folder.iterdir())
    with RunFolder(folder, "resume" if begun else "new") as run:
        run.configure(config.to_json())
        outcome = train_network(config, run)
    print(f"{folder}: {outcome.stage1_accuracy:.1%} of the images held out")


if __name__ == "__main__":
    main()
