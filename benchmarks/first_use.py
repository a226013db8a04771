"""What a newcomer waits for, and what a long simulation takes: import, first simulation, memory over T.

    python benchmarks/first_use.py [--model vgg16] [--images 8] [--out benchmarks/results/first_use.json]

Each figure comes from fresh processes and is the least of three: import of ratenorm beyond torch; the first
and second `simulate` of a process on the event engine; the peak of resident memory at T = 64 and at T = 1024 for each
engine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from ratenorm.workflows.environment import hardware, versions

IMPORT = """
import time
import torch
began = time.perf_counter()
import ratenorm
print(time.perf_counter() - began)
"""

SIMULATE = """
import resource, sys, time
sys.path.insert(0, {here!r})
from networks import subject
from ratenorm.simulate.simulate import simulate
what = subject({model!r}, None, {images})
took = []
for _ in range({calls}):
    began = time.perf_counter()
    simulate(what.conversion.net, what.images[:{images}], {steps}, engine={engine!r})
    took.append(time.perf_counter() - began)
print(*took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def run(program: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vgg16", help="a stand-in with random weights: only sizes matter here")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/first_use.json"))
    args = parser.parse_args()

    def simulation(steps: int, engine: str, calls: int = 1) -> str:
        here = str(Path(__file__).parent)
        return SIMULATE.format(here=here, model=args.model, images=args.images, steps=steps, engine=engine, calls=calls)

    figures: dict[str, object] = {"import_seconds_beyond_torch": min(run(IMPORT)[0] for _ in range(3))}
    print(f"import beyond torch: {figures['import_seconds_beyond_torch']:.2f} s")
    calls = [run(simulation(8, "event", 2)) for _ in range(3)]
    first, second = (min(call[k] for call in calls) for k in (0, 1))
    figures |= {"first_call_seconds": first, "second_call_seconds": second}
    print(f"first call: {first:.3f} s, second: {second:.3f} s")
    engines = ("event", "auto", "dense")
    memory = {e: {str(t): min(run(simulation(t, e))[1] for _ in range(3)) for t in (64, 1024)} for e in engines}
    figures["peak_megabytes"] = memory
    figures["memory_of_1024_steps_to_64"] = {engine: row["1024"] / row["64"] for engine, row in memory.items()}
    for engine, ratio in figures["memory_of_1024_steps_to_64"].items():  # type: ignore[attr-defined]
        print(f"memory, {engine}: T = 1024 takes {ratio:.3f} times that of T = 64 ({memory[engine]['64']:.0f} MB)")
    figures |= {"seed": 0, "model": args.model, "images": args.images, "versions": versions(), "hardware": hardware()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
