"""Pictures in, classes with their scores over time out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ratenorm.data.folder import read_picture
from ratenorm.data.image_set import to_float
from ratenorm.errors import UsageError
from ratenorm.io.spiking import load_with_about
from ratenorm.simulate.engine_name import EngineName
from ratenorm.simulate.simulate import simulate
from ratenorm.workflows.evaluate import spec_of

SHOWN = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def predict(
    network: Path, pictures: Sequence[Path], steps: int = 16, best: int = 3, engine: EngineName = "auto"
) -> list[dict[str, Any]]:
    """The scores of each picture after each step.

    Args:
        network: A spiking network file.
        pictures: PNG, JPEG or WebP files; they are brought to the network's size and colours.
        steps: Time-steps to simulate.
        best: How many classes to name.
        engine: What simulates.

    Returns:
        For each picture: its file, the step from which the answer stays, and the best classes with a probability
        (softmax of the mean output) at each step.
    """
    if steps < 1 or best < 1:
        raise UsageError(f"Predicting: steps is {steps} and best {best}; both must be at least 1.")
    net, about = load_with_about(network)
    spec = spec_of(about, str(network))
    read = [read_picture(file, spec.channels, spec.size) for file in pictures]
    x = spec.normalisation(to_float(torch.stack(read)))
    logits = simulate(net, x, steps, engine=engine).logits
    shares = logits.softmax(-1)
    names = spec.classes or tuple(str(i) for i in range(spec.num_classes))
    found: list[dict[str, Any]] = []
    for i, file in enumerate(pictures):
        answers = logits[:, i].argmax(-1)
        other = (answers != answers[-1]).nonzero().flatten()
        order = shares[-1, i].argsort(descending=True)[:best].tolist()
        found.append(
            {
                "file": str(file),
                "answer": names[int(answers[-1])],
                "settled": 1 if len(other) == 0 else int(other[-1]) + 2,
                "scores": {names[c]: shares[:, i, c].tolist() for c in order},
            }
        )
    return found


def table(found: Sequence[dict[str, Any]], steps: int) -> str:
    """The scores as text."""
    shown = [t for t in SHOWN if t < steps] + [steps]
    lines: list[str] = []
    for one in found:
        lines.append(f"{one['file']}: {one['answer']}, the answer from step {one['settled']} on")
        width = max(8, *(len(name) for name in one["scores"]))
        lines.append("  " + "score (%) at T".ljust(max(width, 14)) + "".join(f"{t:>7}" for t in shown))
        for name, scores in one["scores"].items():
            lines.append("  " + name.ljust(max(width, 14)) + "".join(f"{100 * scores[t - 1]:>7.1f}" for t in shown))
    return "\n".join(lines)
