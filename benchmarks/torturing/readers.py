"""Every reader of files, a valid file for it, and what it makes of a file: content to compare, or our own error."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from ratenorm import records
from ratenorm.convert.thresholds import MaxNorm
from ratenorm.data.cifar import read_cifar
from ratenorm.data.folder import load_folder
from ratenorm.data.image_set import ImageSet
from ratenorm.data.mnist_files import read_mnist
from ratenorm.data.sets import FileSpec, SetSpec
from ratenorm.errors import FileFormatError
from ratenorm.io.networks import NetworkSpec, load_network, save_network
from ratenorm.io.run_folder import CONFIG, METRICS, RunFolder
from ratenorm.io.spiking import load_with_about, save
from ratenorm.report.terminal import read_progress
from ratenorm.simulate.evaluate import evaluate
from ratenorm.train.checkpoint import read_checkpoint
from ratenorm.workflows.partial_sums import PartialSums
from ratenorm.workflows.record import ann_entry, make_record, run_entry
from ratenorm.workflows.resume import PARTS, remembered
from torturing.subjects import STAGE1, bands, small_spiking_net, train_and_keep


@dataclass(frozen=True)
class Reader:
    """`read` gives the content of `file` as something comparable. `pinned` is false where no checksum protects it."""

    name: str
    file: Path
    read: Callable[[], Any]
    pinned: bool = True


def _hash(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _pixels(images: ImageSet) -> Any:
    return _hash({"images": images.images, "labels": images.labels}), images.classes


def network(folder: Path) -> Reader:
    spec = NetworkSpec("cnn7", channels=1, size=(28, 28), mean=(0.5,), std=(0.5,), dataset="mnist")
    torch.manual_seed(0)
    file = save_network(folder / "network.safetensors", spec.build(), spec, half=True)

    def read() -> Any:
        model, found = load_network(file)
        return _hash(model.state_dict()), found

    return Reader("network", file, read)


def spiking_net(folder: Path) -> Reader:
    file = save(small_spiking_net(), folder / "net.safetensors", {"from": "torture"})

    def read() -> Any:
        net, about = load_with_about(file)
        shape = [(n.name, n.op.kind, n.inputs, str(n.op.settings())) for n in net.nodes]
        tensors = {f"{n.name}/{k}": t for n in net.nodes for k, t in n.op.tensors().items()}
        return _hash(tensors), shape, net.output, net.input_shape, about

    return Reader("spiking net", file, read)


def checkpoint(folder: Path) -> Reader:
    train_and_keep(folder / "run")
    file = folder / "run" / "stage1.checkpoint.safetensors"

    def read() -> Any:
        found = read_checkpoint(file)
        return _hash(found.tensors), found.progress

    return Reader("checkpoint", file, read)


def record(folder: Path) -> Reader:
    net, images = small_spiking_net(), bands()
    result = evaluate(net, [(images.images, images.labels)], 8, engine="dense")
    whole = make_record(
        "evaluate",
        "torture",
        {"steps": 8},
        seed=0,
        seconds=1.0,
        data={"name": "bands", "split": "test", "images": len(images), "classes": list(images.classes)},
        ann=ann_entry("small", net, result.analog_accuracy, None),
        runs=[run_entry("max", "small", net, MaxNorm(), 0.5, result)],
        scale="full",
    )
    file = records.write(folder / records.FILE_NAME, whole)
    return Reader("record", file, lambda: records.read(file))


def cifar(folder: Path) -> Reader:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 256, (6, 1 + 3 * 64), generator=generator).byte()
    rows[:, 0] = torch.arange(6) % 3
    content = rows.numpy().tobytes()
    (folder / "set").mkdir()
    (folder / "set" / "test.bin").write_bytes(content)
    files = (FileSpec("test.bin", len(content), hashlib.sha256(content).hexdigest()),)
    spec = SetSpec("small", "set", files, ("test.bin",), ("test.bin",), (3, 8, 8), 3)
    return Reader("CIFAR binary", folder / "set" / "test.bin", lambda: _pixels(read_cifar(spec, "test", folder)))


def idx(folder: Path) -> Reader:
    (folder / "raw").mkdir()
    generator = torch.Generator().manual_seed(0)
    images = bytes([0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 8])
    images += torch.randint(0, 256, (5 * 64,), generator=generator).byte().numpy().tobytes()
    labels = bytes([0, 0, 8, 1, 0, 0, 0, 5, 0, 1, 2, 0, 1])
    files = tuple(
        FileSpec(name, len(data), hashlib.sha256(data).hexdigest())
        for name, data in (("images", images), ("labels", labels))
    )
    (folder / "raw" / "images.gz").write_bytes(gzip.compress(images, mtime=0))
    (folder / "raw" / "labels").write_bytes(labels)
    spec = SetSpec("small", "raw", files, ("images", "labels"), ("images", "labels"), (1, 8, 8), 3)
    return Reader("IDX (gzip)", folder / "raw" / "images.gz", lambda: _pixels(read_mnist("test", folder, spec)))


def image(folder: Path, suffix: str) -> Reader:
    (folder / "images" / "a").mkdir(parents=True)
    file = folder / "images" / "a" / f"1.{suffix}"
    generator = torch.Generator().manual_seed(0)
    Image.fromarray(torch.randint(0, 256, (16, 16, 3), generator=generator).byte().numpy()).save(file)
    return Reader(f"image folder ({suffix})", file, lambda: _pixels(load_folder(folder / "images")), pinned=False)


def config(folder: Path) -> Reader:
    whole = {"stage1": STAGE1.to_json(), "model": "cnn7", "data": {"name": "mnist", "root": None}, "lr": 0.1}
    with RunFolder(folder / "run") as run:
        run.configure(whole)
    file = folder / "run" / CONFIG

    def read() -> Any:
        with RunFolder(folder / "run", "resume") as run:
            run.configure(whole)
        return json.loads(file.read_text())

    return Reader("config.json", file, read)


def part(folder: Path) -> Reader:
    with RunFolder(folder / "run") as run:
        remembered(run, "torture", lambda: {"accuracy": [0.5, 0.75], "method": "max"})
    file = next((folder / "run" / PARTS).iterdir())

    def read() -> Any:
        def anew() -> dict[str, Any]:
            raise FileFormatError("the part is computed anew")

        with RunFolder(folder / "run", "resume") as run:
            return remembered(run, "torture", anew)

    return Reader("finished part", file, read)


def sums(folder: Path) -> Reader:
    net, images = small_spiking_net(), bands()
    with RunFolder(folder / "run") as run:
        kept = PartialSums(run.path, net, {"steps": 8})
        kept.save(evaluate(net, [(images.images, images.labels)], 8, engine="dense"), 1)

    def read() -> Any:
        found, batches = kept.load(8)
        if batches == 0:
            raise FileFormatError("the evaluation begins anew")
        return batches, repr(found)

    return Reader("partial sums", kept.path, read)


def metrics(folder: Path) -> Reader:
    """A log: what is lost from it is lost, and said; no line may be shown that was never written."""
    with RunFolder(folder / "run") as run:
        for epoch in range(6):
            run.log({"stage": "stage1", "epoch": epoch, "loss": 1.5 / (epoch + 1), "seconds": 0.25 * epoch})
    file = folder / "run" / METRICS
    written = read_progress(file).lines

    def read() -> Any:
        found = read_progress(file)
        if found.unreadable:
            raise FileFormatError(f"{found.unreadable} damaged lines left out")
        return [line for line in found.lines if line not in written]

    return Reader("metrics.jsonl", file, read)


MAKERS: dict[str, Callable[[Path], Reader]] = {
    "network": network,
    "spiking net": spiking_net,
    "checkpoint": checkpoint,
    "record": record,
    "CIFAR binary": cifar,
    "IDX (gzip)": idx,
    "image folder (png)": lambda folder: image(folder, "png"),
    "image folder (jpg)": lambda folder: image(folder, "jpg"),
    "config.json": config,
    "finished part": part,
    "metrics.jsonl": metrics,
    "partial sums": sums,
}
