"""Mutated NIR files: no crash, no wrong network accepted.

    python benchmarks/mutated_nir.py [--files 20000] [--seed 0] [--out benchmarks/results/mutated_nir.json]

Three kinds of files are mutated: ours as written (sealed), ours written again by `nir` (no seal over the bytes, a
checksum over the meaning), and files of others (nothing of ours). Mutations change bytes, cut, repeat and insert, or
change the graph within sound HDF5: values, names, edges, kinds, shapes. Every file is imported in a child process.
Allowed: an error of ratenorm; or a network, where it must be equal to the original (ours), or say what the mutated
graph says (others: `nir` reads the graph, and its weights and thresholds are compared with the network's). A child that
dies or hangs counts as wrong.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import random
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ratenorm as rn
from ratenorm.errors import RatenormError
from ratenorm.graph.net import SpikingNet
from ratenorm.graph.ops import Conv, Fire, Linear
from ratenorm.interop import nir_file
from ratenorm.interop.nir_export import export_nir, nir_graph
from ratenorm.interop.nir_import import import_nir
from ratenorm.interop.units import express
from ratenorm.workflows.environment import hardware, versions
from ratenorm.workflows.fingerprint import of_graph

KINDS = ("sealed", "resaved", "foreign")
MEMORY = 4 * 2**30  # bytes of a child
BATCH = 1000  # files of a child
SECONDS = 600.0  # for them


def network() -> SpikingNet:
    """A small network with everything that NIR can say: BatchNorm, a residual sum, pools, a strided layer."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n, self.b = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)
            self.c, self.d = nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.Linear(6 * 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.n(self.a(x)))
            y = torch.relu(self.b(y) + y)
            y = nn.functional.avg_pool2d(torch.relu(self.c(y)), 2)
            return self.d(y.flatten(1))

    torch.manual_seed(0)
    x = torch.rand(16, 1, 8, 8)
    return rn.convert(Net().eval(), "max", example=x[:1], calibration=x, v0=0.5).net


def originals(folder: Path) -> tuple[dict[str, bytes], SpikingNet]:
    """One file of each kind."""
    import nir

    net = network()
    sealed = export_nir(net, folder / "sealed.nir", warn=False).path
    nir.write(folder / "resaved.nir", nir.read(sealed))
    graph = nir_graph(net, express(net), "fold", {})
    graph.metadata = {}
    for node in graph.nodes.values():
        node.metadata = {}
    nir.write(folder / "foreign.nir", graph)
    return {kind: (folder / f"{kind}.nir").read_bytes() for kind in KINDS}, net


def mutated(data: bytes, dice: random.Random) -> bytes:
    """Bytes changed, cut, repeated, inserted or zeroed; often near the start, where HDF5 keeps its structure."""
    changed = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 4, 16])):
        if not changed:
            break
        where = dice.choice([dice.randrange(len(changed)), dice.randrange(min(4096, len(changed)))])
        length = dice.choice([1, 1, 2, 4, 8, 64])
        kind = dice.randrange(6)
        if kind == 0:
            changed[where] ^= 1 << dice.randrange(8)
        elif kind == 1:
            changed[where : where + length] = bytes(dice.randrange(256) for _ in range(length))
        elif kind == 2:
            changed[where : where + length] = dice.choice([b"\x00", b"\xff"]) * length
        elif kind == 3:
            del changed[where : where + length]
        elif kind == 4:
            changed[where:where] = changed[where : where + length]
        else:
            del changed[dice.randrange(len(changed)) :]
    return bytes(changed)


def edited(source: Path, target: Path, dice: random.Random) -> None:
    """The graph changed, in a sound HDF5 file without a seal."""
    import h5py
    import numpy as np

    data = source.read_bytes()
    target.write_bytes(data)
    with h5py.File(target, "r+") as file:
        places: list[str] = []
        file.visititems(lambda name, item: places.append(name) if isinstance(item, h5py.Dataset) else None)
        for _ in range(dice.choice([1, 1, 2, 3])):
            name = dice.choice(places)
            if name not in file:
                continue
            value = file[name][()]
            kind = dice.randrange(5)
            if kind == 0:
                del file[name]
            elif isinstance(value, bytes):
                words = [
                    b"IF",
                    b"LIF",
                    b"Affine",
                    b"Conv2d",
                    b"Flatten",
                    b"Scale",
                    b"I",
                    b"Input",
                    b"Output",
                    b"",
                    b"x\xff",
                ]
                text = dice.choice([*words, value[:-1], value + b"x", value.replace(b"subtract", b"zero")])
                del file[name]
                file[name] = text
            elif np.asarray(value).dtype.kind in "fiu":
                array = np.array(value)
                del file[name]
                file[name] = _changed_numbers(array, dice)
            elif np.asarray(value).dtype.kind == "O":
                pairs = [list(pair) for pair in value]
                i, j = dice.randrange(len(pairs)), dice.randrange(len(pairs))
                how = dice.randrange(4)
                if how == 0:
                    pairs.pop(i)
                elif how == 1:
                    pairs.append([pairs[i][0], pairs[j][1]])
                elif how == 2:
                    pairs[i][1] = pairs[j][1]
                else:
                    pairs[i] = pairs[i][::-1]
                del file[name]
                file.create_dataset(name, data=pairs or [[b"a", b"b"]], dtype=h5py.string_dtype())


def _changed_numbers(array: Any, dice: random.Random) -> Any:
    import numpy as np

    kind = dice.randrange(6)
    if kind == 0 and array.ndim:
        return array.T.copy()
    if kind == 1 and array.size:
        return array.reshape(-1)[:-1]
    if kind == 2:
        return np.stack([array, array])
    if kind == 3:
        return array.astype(dice.choice([np.float64, np.float16, np.int8, np.uint64]))
    flat = array.reshape(-1).copy()
    if flat.size:
        values = [0, -1, 1, 2, 7, 2**30] + ([float("nan"), float("inf"), 1e30, -0.5] if array.dtype.kind == "f" else [])
        with np.errstate(all="ignore"):
            flat[dice.randrange(flat.size)] = dice.choice(values)
    return flat.reshape(array.shape)


def judged(path: Path, kind: str, fingerprint: str) -> str:
    """What importing the file did."""
    try:
        net = import_nir(path, reset="subtract")
    except RatenormError as error:
        return "refused" if str(error) else "WRONG: no reason"
    except MemoryError:
        return "WRONG: memory"
    except BaseException as error:  # it is what must not happen
        return f"WRONG: {type(error).__name__}: {str(error)[:120]}"
    if kind != "foreign":
        return "accepted, equal" if of_graph(net) == fingerprint else "WRONG: another network"
    return says_what_the_file_says(path, net)


def says_what_the_file_says(path: Path, net: SpikingNet) -> str:
    """A file of others: every weight and threshold of the network is that of the graph, as `nir` reads it."""
    import nir
    import numpy as np

    try:
        graph = nir.read(path, type_check=False)
    except Exception as error:
        return f"WRONG: nir cannot read it: {str(error)[:80]}"
    nodes = {node.name: node.op for node in net.nodes}
    for name, node in graph.nodes.items():
        op = nodes.get(name)
        if isinstance(op, Conv | Linear) and not np.array_equal(op.weight.numpy(), np.asarray(node.weight, np.float32)):
            return "WRONG: another weight"
        if isinstance(op, Fire) and not np.array_equal(
            np.broadcast_to(op.threshold.numpy(), net.shapes[name]),
            np.broadcast_to(np.asarray(node.v_threshold, np.float32), net.shapes[name]),
        ):
            return "WRONG: another threshold"
    wanted = sum(type(n).__name__ == "IF" for n in graph.nodes.values())
    return "accepted, as it says" if wanted == len(net.populations) else "WRONG: neurons lost"


def child(start: int, count: int, seed: int, folder: str) -> None:
    """Import some mutated files; what became of each is written down, a line each."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    nir_file.SECONDS = 5.0  # small files: what takes longer hangs
    place = Path(folder)
    found: dict[str, bytes] = {kind: (place / f"{kind}.nir").read_bytes() for kind in KINDS}
    fingerprint = (place / "fingerprint").read_text()
    log = (place / f"log-{start}").open("w", buffering=1, encoding="utf-8")
    for number in range(start, start + count):
        dice = random.Random(f"{seed} {number}")
        kind = KINDS[number % 3]
        path = place / f"mutated-{start}.nir"
        if kind != "sealed" and dice.random() < 0.5:
            edited(place / f"{kind}.nir", path, dice)
            how = "edited"
        else:
            path.write_bytes(mutated(found[kind], dice))
            how = "bytes"
        log.write(f"{kind}, {how}: {judged(path, kind, fingerprint)}\n".replace("\n", " ").strip() + "\n")


def run(first: int, files: int, seed: int, folder: Path) -> tuple[dict[str, int], list[str]]:
    """Mutate and import; a child that dies or hangs is counted, and the next one starts after its file."""
    _, net = originals(folder)
    (folder / "fingerprint").write_text(of_graph(net))
    totals: collections.Counter[str] = collections.Counter()
    deaths: list[str] = []
    context = multiprocessing.get_context("fork")
    number, files = first, first + files
    while number < files:
        process = context.Process(target=child, args=(number, min(BATCH, files - number), seed, str(folder)))
        process.start()
        process.join(SECONDS)
        done = (folder / f"log-{number}").read_text(encoding="utf-8").splitlines()
        totals.update(done)
        if process.is_alive() or process.exitcode != 0:
            what = "hung" if process.is_alive() else f"died ({process.exitcode})"
            process.kill()
            process.join()
            at = number + len(done)
            deaths.append(f"file {at} of seed {seed}: the child {what}")
            totals[f"{KINDS[at % 3]}: WRONG: child {what.split()[0]}"] += 1
            number = at + 1
        else:
            number += len(done)
    return dict(sorted(totals.items())), deaths


def shared(args: argparse.Namespace, folder: Path) -> tuple[dict[str, int], list[str]]:
    """The same by several processes, each with a part of the files."""
    each = -(-args.files // args.parts)
    outs, processes = [], []
    for first in range(args.first, args.first + args.files, each):
        outs.append(folder / f"{first}.json")
        count = min(each, args.first + args.files - first)
        words = ["--first", first, "--files", count, "--seed", args.seed, "--out", outs[-1]]
        processes.append(subprocess.Popen([sys.executable, __file__, *map(str, words)], stdout=subprocess.DEVNULL))
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit("a part failed")
    totals: collections.Counter[str] = collections.Counter()
    deaths: list[str] = []
    for out in outs:
        found = json.loads(out.read_text("utf-8"))
        totals.update(found["verdicts"])
        deaths += found["deaths"]
    return dict(sorted(totals.items())), deaths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1, help="processes that share the files")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/mutated_nir.json"))
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        if args.parts == 1:
            totals, deaths = run(args.first, args.files, args.seed, Path(folder))
        else:
            totals, deaths = shared(args, Path(folder))
    wrong = sum(count for verdict, count in totals.items() if "WRONG" in verdict)
    for verdict, count in totals.items():
        print(f"{count:8}  {verdict}")
    print(f"{args.files} files, {wrong} wrong, {time.monotonic() - began:.0f} s", *deaths, sep="\n")
    figures = {"files": args.files, "seed": args.seed, "verdicts": totals, "wrong": wrong, "deaths": deaths}
    figures |= {"seconds": time.monotonic() - began, "versions": versions(), "hardware": hardware()}
    args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
