"""Two processes against one: training, calibration, evaluation; and a worker killed under torchrun --max-restarts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratenorm import records
from torturing.interrupts import picture_folder

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TRAIN = ["--epochs", "4", "--batch-size", "10", "--holdout", "20", "--lr", "0.0005"]


def _start(words: list[str], processes: int, restarts: int = 0) -> subprocess.Popen[str]:
    runner = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    runner += [f"--max-restarts={restarts}", "-m", "ratenorm"]
    program = [sys.executable, *(runner if processes > 1 else ["-m", "ratenorm"]), *words]
    environment = {**os.environ, **ONE_THREAD}
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def _finish(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=300)
    if process.returncode:
        raise RuntimeError(f"{' '.join(map(str, process.args))} ended with {process.returncode}:\n{output[-3000:]}")


def _losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def compare_processes(folder: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """The largest difference of losses, whether calibrated files and evaluation records are equal, and a restart."""
    data = str(picture_folder(folder / "data"))
    for processes in (1, 2):
        out = str(folder / f"train{processes}")
        _finish(_start(["train", "--data", data, "--out", out, *TRAIN], processes))
    _second_stage_of_the_same_network(folder, data)
    network = str(folder / "train1" / "stage1.safetensors")
    for processes in (1, 2):
        net, out = str(folder / f"net{processes}.safetensors"), str(folder / f"evaluate{processes}")
        words = ["--data", data, "--images", "50", "--method", "percentile:99.9"]
        _finish(_start(["convert", network, "--out", net, *words], processes))
        words = ["--data", data, "--steps", "16", "--batch-size", "20", "--coding", "poisson"]
        _finish(_start(["evaluate", str(folder / "net1.safetensors"), "--out", out, *words], processes))
    one, two = (records.read(folder / f"evaluate{n}" / records.FILE_NAME)["runs"][0] for n in (1, 2))
    first, second = _losses(folder / "train1"), _losses(folder / "train2")
    same_start = second[:-1] + _losses(folder / "second")
    found = {
        "largest_difference_of_losses": max(abs(a - b) for a, b in zip(first, same_start, strict=True)),
        "difference_of_stage2_behind_their_own_stage1": abs(first[-1] - second[-1]),
        "calibrated_files_equal": _bytes(folder / "net1.safetensors") == _bytes(folder / "net2.safetensors"),
        "accuracies_equal": one["accuracy"] == two["accuracy"],
        "evaluations_equal": _timeless(one) == _timeless(two),
        **_restart(folder, data),
    }
    say(f"  {found}")
    return found


def _second_stage_of_the_same_network(folder: Path, data: str) -> None:
    """Rounding in stage 1 makes two networks of one, and their stages 2 have no batch in common; so here two processes
    also go on from the network of the one."""
    (folder / "second").mkdir()
    for name in ("config.json", "stage1.safetensors"):
        shutil.copy(folder / "train1" / name, folder / "second" / name)
    _finish(_start(["train", "--data", data, "--out", str(folder / "second"), *TRAIN, "--resume"], 2))


def _restart(folder: Path, data: str) -> dict[str, Any]:
    """Kill one of two workers after the first epoch; torchrun starts both anew and the run must end as if unbroken."""
    out = folder / "restarted"
    process = _start(["train", "--data", data, "--out", str(out), *TRAIN], 2, restarts=1)
    deadline = time.monotonic() + 120
    while not (out / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    workers = [int(n) for n in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    killed = workers[-1]
    os.kill(killed, signal.SIGKILL)
    _finish(process)
    equal = all(_bytes(out / f) == _bytes(folder / "train2" / f) for f in ("stage1.safetensors", "stage2.safetensors"))
    return {"restarted_networks_equal": equal, "restarted_losses_equal": _losses(out) == _losses(folder / "train2")}


def _bytes(path: Path) -> bytes:
    return path.read_bytes()


def _timeless(run: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in run.items() if "second" not in key}
