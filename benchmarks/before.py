"""The event engine beside that of an earlier commit: the same networks, weights and images, turn by turn.

    git worktree add ../before 941a31c && make -C ../before .venv/installed
    python benchmarks/before.py --before ../before [--networks zoo/vgg16-cifar10.safetensors …] [--turns 5]
                                [--threads 1] [--out benchmarks/results/before.json]

Each engine runs in a process of its own, in the environment of its worktree. A turn is a quarter of a second; the best
run of all turns counts, since the machine's noise only ever adds time. Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from networks import subject
from ratenorm.io import spiking
from ratenorm.io.spiking import save
from ratenorm.workflows.environment import hardware, versions

SERVER = """
import sys, time
from safetensors.torch import load_file
from ratenorm.io.spiking import load
from ratenorm.simulate.simulate import simulate
known = {}
for line in sys.stdin:
    folder, steps, batch = line.split()
    if folder not in known:
        known[folder] = load(folder + "/net.safetensors"), load_file(folder + "/images.safetensors")["images"]
    net, images = known[folder]
    x, best = images[: int(batch)], float("inf")
    result = simulate(net, x, int(steps), engine="event")
    began = now = time.perf_counter()
    while now < began + 0.25:
        result = simulate(net, x, int(steps), engine="event")
        best, now = min(best, time.perf_counter() - now), time.perf_counter()
    print(best, float(sum(layer.spikes.sum() for layer in result.layers)), flush=True)
"""
CASES = {
    "vgg16": [(steps, batch) for steps in (2, 4, 8, 32) for batch in (1, 16)],
    "preact_resnet20": [(32, 1), (32, 16)],
    "preact_resnet18": [(32, 16)],
    "cnn7": [(8, 1), (256, 200)],
}
STARTS = (0.0, 0.5)  # v(0) in thresholds: from 0 few neurons fire within the first steps


class Engine:
    """A process that measures on demand."""

    def __init__(self, python: Path, source: Path | None, threads: int) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        command = [str(python), "-c", SERVER]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def measure(self, folder: Path, steps: int, batch: int) -> tuple[float, float]:
        """Seconds of the best run of a turn, and the number of spikes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{folder} {steps} {batch}\n")
        self._process.stdin.flush()
        seconds, spikes = map(float, self._process.stdout.readline().split())
        return seconds, spikes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    spiking.VERSION, spiking.packed = 1, lambda weight: None  # files that earlier commits read too
    parser.add_argument("--before", type=Path, required=True, help="worktree of the earlier commit, with its .venv")
    parser.add_argument("--networks", type=Path, nargs="+", default=[Path("zoo/vgg16-cifar10.safetensors")])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/before.json"))
    args = parser.parse_args()
    old = args.before.resolve()
    engines = {
        "before": Engine(old / ".venv/bin/python", old / "src", args.threads),
        "now": Engine(Path(sys.executable), None, args.threads),
    }
    commit = subprocess.run(["git", "-C", str(old), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for file in args.networks:
            for start in STARTS:
                what = subject("", file, max(batch for cases in CASES.values() for _, batch in cases), v0=start)
                folder = Path(temporary) / f"{file.stem}-{start}"
                folder.mkdir()
                save(what.conversion.net, folder / "net.safetensors")
                save_file({"images": what.images.contiguous()}, folder / "images.safetensors")
                for steps, batch in CASES[what.name]:
                    found = {name: [] for name in engines}  # type: dict[str, list[tuple[float, float]]]
                    for _ in range(args.turns):
                        for name, engine in engines.items():
                            found[name].append(engine.measure(folder, steps, batch))
                    best = {name: 1e3 * min(turns)[0] for name, turns in found.items()}
                    spikes = {name: turns[0][1] for name, turns in found.items()}
                    row = {"network": what.name, "v0": start, "steps": steps, "batch": batch, "milliseconds": best}
                    rows.append({**row, "ratio": best["now"] / best["before"], "spikes": spikes})
                    times = ", ".join(f"{name} {ms:.2f} ms" for name, ms in best.items())
                    print(f"{what.name} v0 {start} T {steps} batch {batch}: {times}, ratio {rows[-1]['ratio']:.3f}")
    figures = {"before": commit.stdout.strip(), "threads": args.threads, "turns": args.turns, "rows": rows}
    figures |= {"versions": versions(), "hardware": hardware()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
