"""Two processes against one: training, calibration, evaluation; and a worker killed under torchrun --max-restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratenorm import records
from torturing.agreement import largest_gap
from torturing.interrupts import picture_folder

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TRAIN = ["--epochs", "4", "--batch-size", "10", "--holdout", "20", "--lr", "0.0005"]


def _start(
    words: list[str], processes: int, restarts: int = 0, program: tuple[str, ...] = ("-m", "ratenorm")
) -> subprocess.Popen[str]:
    runner = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    runner += [f"--max-restarts={restarts}"]
    whole = [sys.executable, *(runner if processes > 1 else []), *program, *words]
    places = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    return subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def _finish(process: subprocess.Popen[str]) -> None:
    try:
        output, _ = process.communicate(timeout=300)
    except BaseException:
        process.terminate()  # torchrun takes its workers with it
        process.wait(60)
        raise
    if process.returncode:
        raise RuntimeError(f"{' '.join(map(str, process.args))} ended with {process.returncode}:\n{output[-3000:]}")


def _losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def compare_processes(folder: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """The largest differences of losses, whether calibrated files and evaluation records are equal, and a restart."""
    data = str(picture_folder(folder / "data"))
    for processes in (1, 2):
        out = str(folder / f"train{processes}")
        _finish(_start(["train", "--data", data, "--out", out, *TRAIN], processes))
    network = str(folder / "train1" / "stage1.safetensors")
    for processes in (1, 2):
        net, out = str(folder / f"net{processes}.safetensors"), str(folder / f"evaluate{processes}")
        words = ["--data", data, "--images", "50", "--method", "percentile:99.9"]
        _finish(_start(["convert", network, "--out", net, *words], processes))
        words = ["--data", data, "--steps", "16", "--batch-size", "20", "--coding", "poisson"]
        _finish(_start(["evaluate", str(folder / "net1.safetensors"), "--out", out, *words], processes))
    one, two = (records.read(folder / f"evaluate{n}" / records.FILE_NAME)["runs"][0] for n in (1, 2))
    found = {
        **_differences_of_losses(folder, data),
        "calibrated_files_equal": _bytes(folder / "net1.safetensors") == _bytes(folder / "net2.safetensors"),
        "accuracies_equal": one["accuracy"] == two["accuracy"],
        "evaluations_equal": _timeless(one) == _timeless(two),
        **_restart(folder, data),
    }
    say(f"  {found}")
    return found


def _differences_of_losses(folder: Path, data: str) -> dict[str, float]:
    """Over every step of both stages; agreement.py says why each is asked for."""
    script = (str(Path(__file__).with_name("agreement.py")),)
    for processes, kinds in ((2, ["lead", "double", "own"]), (1, ["follow", "double", "own", "reversed", "sums"])):
        _finish(_start([str(folder), data, *kinds], processes, program=script))

    def gap(one: str, other: str) -> float:
        return largest_gap(*(json.loads((folder / f"{name}.json").read_text()) for name in (one, other)))

    return {
        "largest_difference_of_losses_from_the_same_state": gap("lead-2", "follow-1"),
        "largest_difference_of_losses_in_float64": gap("double-2", "double-1"),
        "drift_in_float32_of_2_processes_from_1": gap("own-2", "own-1"),
        "drift_in_float32_of_2_processes_from_1_that_sums_alike": gap("own-2", "sums-1"),
        "drift_in_float32_of_reversed_batches_in_1_process": gap("own-1", "reversed-1"),
        "drift_in_float32_from_float64_in_1_process": gap("own-1", "double-1"),
    }


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
