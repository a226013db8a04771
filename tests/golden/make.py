"""Write the golden files: `python tests/golden/make.py`, once for every version of a format, never again after release.

They hold every file format at every version, small, with content that the tests know. What is there is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from ratenorm import records
from ratenorm.graph.net import INPUT, Node, SpikingNet
from ratenorm.graph.ops import AvgPool, Conv, Fire, Input, Linear, Reshape
from ratenorm.io import networks as network_format
from ratenorm.io import spiking as spiking_format
from ratenorm.io.networks import NetworkSpec, save_network
from ratenorm.io.run_folder import RunFolder
from ratenorm.io.spiking import save
from ratenorm.train import checkpoint as checkpoint_format
from ratenorm.train.checkpoint import Checkpoint, write_checkpoint

HERE = Path(__file__).parent


def ramp(*shape: int, scale: float = 1 / 64) -> Tensor:
    """0, 1, -2, 3, -4, … times a power of two: exact everywhere."""
    count = torch.Size(shape).numel()
    return torch.tensor([(i % 13) * (1 if i % 2 else -1) * scale for i in range(count)]).reshape(shape)


def spiking_net() -> SpikingNet:
    nodes = (
        Node(INPUT, Input()),
        Node("conv", Conv(ramp(2, 1, 3, 3), ramp(2), (1, 1), (1, 1, 1, 1)), (INPUT,)),
        Node("fire", Fire(torch.tensor([0.5]), torch.tensor([0.25])), ("conv",)),
        Node("pool", AvgPool((2, 2), (2, 2), (0, 0)), ("fire",)),
        Node("flat", Reshape((8,)), ("pool",)),
        Node("answer", Linear(ramp(3, 8), None), ("flat",)),
    )
    return SpikingNet(nodes, "answer", (1, 4, 4))


def network() -> tuple[nn.Module, NetworkSpec]:
    """cnn7 with every weight from the ramp, and every threshold 2."""
    spec = NetworkSpec("cnn7", num_classes=3, channels=1, size=(28, 28), mean=(0.5,), std=(0.25,), dataset="golden")
    model = spec.build()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(torch.tensor(2.0) if name.endswith("running_max") else ramp(*value.shape, scale=1 / 32).abs())
    return model, spec


def checkpoint() -> Checkpoint:
    history = [{"stage": "stage1", "epoch": 1, "loss": 0.5}]
    progress = {"stage": "stage1", "epoch": 1, "batch": 2, "seconds": 1.5, "history": history, "logged": 40, "sums": {}}
    tensors = {"model/weight": ramp(3, 2), "optimizer/0/momentum_buffer": ramp(3, 2), "model/step": torch.tensor(7)}
    return Checkpoint(tensors, progress)


def main() -> None:
    model, spec = network()
    writers: dict[str, Callable[[Path], object]] = {
        f"network-{network_format.VERSION}.safetensors": lambda path: save_network(path, model, spec, half=True),
        f"spiking-net-{spiking_format.VERSION}.safetensors": lambda path: save(spiking_net(), path, {"from": "golden"}),
        f"checkpoint-{checkpoint_format.VERSION}.safetensors": lambda path: write_checkpoint(path, checkpoint()),
        f"run-{records.VERSION}": run_folder,
    }
    for name, write in writers.items():
        if not (HERE / name).exists():
            write(HERE / name)


def run_folder(path: Path) -> None:
    with RunFolder(path) as folder:
        folder.configure({"model": "cnn7", "data": {"name": "mnist"}, "lr": 0.125})
        folder.log({"stage": "stage1", "epoch": 1, "epochs": 1, "loss": 0.5, "seconds": 1.5})
        records.write(folder / records.FILE_NAME, record())


def record() -> records.Record:
    from ratenorm.convert.thresholds import MaxNorm
    from ratenorm.simulate.evaluate import evaluate
    from ratenorm.workflows.record import ann_entry, make_record, run_entry

    net = spiking_net()
    result = evaluate(net, [(ramp(6, 1, 4, 4, scale=1 / 8), torch.arange(6) % 3)], 4, engine="dense")
    whole = make_record(
        "evaluate",
        "golden",
        {"steps": 4},
        seed=0,
        seconds=1.5,
        data={"name": "golden", "split": "test", "images": 6, "classes": ["a", "b", "c"]},
        ann=ann_entry("small", net, result.analog_accuracy, None),
        runs=[run_entry("max", "small", net, MaxNorm(), 0.5, result)],
        scale="full",
    )
    hardware = {"cpu": "golden", "cores": 2, "threads": 2, "memory_gb": 8.0}
    return json.loads(json.dumps({**whole, "created": "2026-01-01T00:00:00+00:00", "hardware": hardware}))


if __name__ == "__main__":
    main()
