"""Files made to hurt: refused before they cost memory or time, whatever their checksum says."""

from __future__ import annotations

import contextlib
import copy
import csv
import io
import json
import os
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ratenorm import records, report
from ratenorm.cli.main import main
from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import MaxNorm
from ratenorm.errors import FileFormatError, RatenormError, StorageError, UsageError
from ratenorm.io import spiking
from ratenorm.io.files import check_writable, read_small, read_tensors, write_tensors
from ratenorm.io.networks import NetworkSpec, load_network, save_network
from ratenorm.io.run_folder import METRICS, RunFolder
from ratenorm.io.spiking import load, save
from ratenorm.io.text import printable
from ratenorm.report.tables import Table, all_tables
from ratenorm.report.terminal import read_progress
from ratenorm.simulate.simulate import simulate
from ratenorm.train.checkpoint import read_checkpoint
from ratenorm.workflows.describe import describe
from ratenorm.workflows.evaluate import spec_of
from ratenorm.workflows.fingerprint import of_file
from strangers.architectures import shape_of, stranger
from torturing.forged import forge
from torturing.subjects import small_spiking_net

GOLDEN = Path(__file__).parents[1] / "golden"


def unpacked_file(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of a spiking network with its packed weights unpacked, and the content."""
    tensors, content = read_tensors(file, spiking.FORMAT, spiking.VERSION)
    return spiking._whole(tensors), content


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_classes", 10**9),
        ("num_classes", 60_000),
        ("channels", 50_000),
        ("channels", -1),
        ("num_classes", "3"),
        ("num_classes", 3.0),
        ("size", [28]),
        ("size", [10**9, 28]),
        ("mean", []),
        ("mean", [float(0)] * 3),
        ("std", [0.0]),
        ("classes", ["a"]),
        ("classes", [1, 2, 3]),
        ("model", "vgg16"),
        ("model", None),
        ("activation", "exec"),
        ("surprise", 1),
    ],
)
def test_an_absurd_network(field: str, value: Any, tmp_path: Path) -> None:
    tensors, content = read_tensors(GOLDEN / "network-1.safetensors", "ratenorm-network", 1)
    content["spec"][field] = value
    write_tensors(tmp_path / "n.safetensors", tensors, content)
    before = peak()
    with pytest.raises(FileFormatError, match="do not fit the network it names"):
        load_network(tmp_path / "n.safetensors")
    assert peak() - before < 200


def test_a_spec_kept_with_a_spiking_net_is_checked_too() -> None:
    good = NetworkSpec("cnn7", channels=1, size=(28, 28), mean=(0.5,), std=(0.5,)).to_json()
    assert spec_of({"spec": good}, "x").model == "cnn7"
    for about in ({}, {"spec": None}, {"spec": {**good, "channels": 10**9}}, {"spec": {**good, "std": [0.0]}}):
        with pytest.raises(FileFormatError, match="does not say which images"):
            spec_of(about, "x")


def forged_net(tmp_path: Path, **changes: Any) -> Path:
    """The small net with nodes' settings changed (`node__setting`), or the whole's."""
    file = save(small_spiking_net(), tmp_path / "net.safetensors")
    tensors, content = unpacked_file(file)
    for key, value in changes.items():
        name, _, setting = key.partition("__")
        if setting == "tensor":
            tensors[name] = value
        elif setting:
            next(n for n in content["nodes"] if n["name"] == name)["settings"][setting] = value
        else:
            content[key] = value
    return write_tensors(file, tensors, content)


@pytest.mark.parametrize(
    "changes",
    [
        {"input_shape": [1, 10**6, 10**6]},
        {"input_shape": [1, 2**13, 2**13 + 1]},
        {"input_shape": [1, 10**18, 10**18]},
        {"input_shape": [1, 0, 8]},
        {"input_shape": "888"},
        {"0__padding": [10**6, 10**6, 10**6, 10**6]},
        {"0__padding": [2**40, 2**40, 2**40, 2**40]},
        {"0__stride": [0, 0]},
        {"0__groups": 0},
        {"0__padding_mode": "exec"},
        {"2__kernel": [0, 0]},
        {"2__stride": [0, 0]},
        {"5.unscaled__kernel": [10**9, 10**9]},
        {"6__shape": [2**62]},
        {"6__shape": [2]},
        {"output": "2"},
        {"output": None},
        {"nodes": []},
        {"1//start__tensor": torch.zeros(5)},
        {"1//threshold__tensor": torch.ones(3, 1, 1, 1, 1)},
        {"0//weight__tensor": torch.zeros(0, 1, 3, 3)},
    ],
    ids=lambda changes: next(f"{k} {v}"[:40] for k, v in changes.items()),
)
def test_an_absurd_spiking_net(changes: dict[str, Any], tmp_path: Path) -> None:
    if changes == {"output": "2"}:
        load(forged_net(tmp_path, **changes))  # unusual, but a network
        return
    file = forged_net(tmp_path, **changes)
    before = peak()
    with pytest.raises(FileFormatError, match="do not make a spiking network"):
        load(file)
    assert peak() - before < 200


def test_too_much_work_and_mixed_images_are_refused(tmp_path: Path) -> None:
    def built(op: dict[str, Any], tensors: dict[str, torch.Tensor], shape: list[int]) -> Path:
        nodes = [
            {"name": "input", "kind": "input", "inputs": [], "settings": {}},
            {"name": "a", "inputs": ["input"], **op},
        ]
        content = {"format": "ratenorm-spiking-net", "version": 1, "nodes": nodes, "output": "a", "input_shape": shape}
        return write_tensors(tmp_path / "a.safetensors", tensors, content)

    square = {"stride": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1}
    cases = [
        ({"kind": "conv", "settings": square}, {"a//weight": torch.zeros(16, 16, 64, 64)}, [16, 1000, 1000]),
        ({"kind": "upsample", "settings": {"size": [10**5, 10**5]}}, {}, [1, 8, 8]),
        ({"kind": "adaptive_avg_pool", "settings": {"size": [5000, 1]}}, {}, [1, 8, 8]),
        ({"kind": "slice", "settings": {"dim": 0, "start": 0, "stop": 1}}, {}, [1, 8, 8]),
        ({"kind": "permute", "settings": {"dims": [1, 0, 2, 3]}}, {}, [1, 8, 8]),
        ({"kind": "activation", "settings": {}}, {}, [1, 8, 8]),
    ]
    for op, tensors, shape in cases:
        with pytest.raises(FileFormatError, match="do not make a spiking network"):
            load(built(op, tensors, shape))


@pytest.mark.parametrize("number", ["1" + "0" * 400, "9223372036854775808", "-1e999", "NaN"])
def test_numbers_that_no_record_holds(number: str, tmp_path: Path) -> None:
    text = (GOLDEN / "run-1" / "record.json").read_text()
    (tmp_path / "record.json").write_text(text.replace('"seed":0', f'"seed":{number}'))
    with pytest.raises(FileFormatError, match="damaged"):
        records.read(tmp_path / "record.json")
    assert json.loads(text)["seed"] == 0


def test_what_cannot_be_written_is_found_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="it is a folder"):
        check_writable(tmp_path)
    with pytest.raises(StorageError, match="folder that can be written"):
        check_writable(tmp_path / "file" / "below.safetensors")
    check_writable(tmp_path / "new" / "net.safetensors")
    assert list((tmp_path / "new").iterdir()) == []


def test_float16_networks_still_load(tmp_path: Path) -> None:
    spec = NetworkSpec("cnn7", channels=1, size=(28, 28), mean=(0.5,), std=(0.5,))
    save_network(tmp_path / "n.safetensors", spec.build(), spec, half=True)
    assert load_network(tmp_path / "n.safetensors")[1] == spec


# -- links, pipes and devices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hard", [False, True], ids=["symbolic", "hard"])
def test_a_lock_that_is_a_link_leads_nowhere(hard: bool, tmp_path: Path) -> None:
    victim, run = tmp_path / "victim", tmp_path / "run"
    victim.write_text("precious")
    run.mkdir()
    (run / ".lock").hardlink_to(victim) if hard else (run / ".lock").symlink_to(victim)
    with pytest.raises(UsageError, match=r"its \.lock is a link"):
        RunFolder(run)
    assert victim.read_text() == "precious"


def test_a_lock_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(UsageError, match="Opening the run folder"):
        RunFolder(tmp_path)


def test_metrics_that_are_a_link_are_neither_appended_to_nor_cut(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    with RunFolder(tmp_path / "run") as folder:
        (folder / METRICS).symlink_to(victim)
        with pytest.raises(RatenormError, match="it is a link"):
            folder.log({"epoch": 1})
        with pytest.raises(RatenormError, match="it is a link"):
            folder.rewind(0)
        assert victim.read_text() == "precious"
        (folder / METRICS).unlink()
        folder.log({"epoch": 1})
        assert folder.logged > 0
        folder.rewind(0)
        assert folder.logged == 0


def test_what_is_written_in_whole_replaces_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "net").symlink_to(victim)
    save(small_spiking_net(), tmp_path / "net")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "net").is_symlink()


READERS: dict[str, Callable[[Path], object]] = {
    "spiking net": load,
    "network": load_network,
    "checkpoint": read_checkpoint,
    "record": records.read,
    "salvaged record": records.salvage,
    "model file": of_file,
    "info": describe,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["pipe", "zeros", "link to zeros", "folder"])
def test_only_regular_files_are_read(kind: str, reader: str, tmp_path: Path) -> None:
    """A pipe would be waited for, and /dev/zero has no end."""
    file = Path("/dev/zero")
    if kind == "pipe":
        os.mkfifo(file := tmp_path / "pipe")
    elif kind == "link to zeros":
        (file := tmp_path / "zero").symlink_to("/dev/zero")
    elif kind == "folder":
        file = tmp_path
    before = peak()
    with pytest.raises(RatenormError):
        READERS[reader](file)
    assert peak() - before < 50


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    save(small_spiking_net(), tmp_path / "net")
    (tmp_path / "link").symlink_to(tmp_path / "net")
    assert load(tmp_path / "link").same_as(load(tmp_path / "net"))


def test_progress_and_partial_results_are_read_from_regular_files_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_progress(tmp_path / "pipe").lines == ()
    assert read_progress(Path("/dev/zero")).lines == ()
    with pytest.raises(OSError, match="not a regular file"):
        read_small(tmp_path / "pipe", 10)
    (tmp_path / "long").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="more than 10 bytes"):
        read_small(tmp_path / "long", 10)
    assert read_small(tmp_path / "long", 11) == b"x" * 11


def test_many_empty_tensors_cost_no_time(tmp_path: Path) -> None:
    begun = time.monotonic()
    many = {f"{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(300_000)}
    header = json.dumps(many).encode()
    (tmp_path / "many").write_bytes(len(header).to_bytes(8, "little") + header)
    written = time.monotonic() - begun
    begun = time.monotonic()
    with pytest.raises(FileFormatError, match="are allowed"):
        load(tmp_path / "many")
    few = json.dumps(dict(list(many.items())[:20_000])).encode()
    (tmp_path / "many").write_bytes(len(few).to_bytes(8, "little") + few)
    with pytest.raises(FileFormatError, match="20,000 tensors, 16,384 are allowed"):
        load(tmp_path / "many")
    assert time.monotonic() - begun < max(1.0, written)


# -- forged networks ---------------------------------------------------------------------------------------------------


def small_graph(**changes: tuple[str, dict[str, Any], list[str]]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Two populations whose spikes are added, joined, sliced, moved, pooled and enlarged; nodes changed by name."""
    generator = torch.Generator().manual_seed(0)
    conv = {"stride": [1, 1], "padding": [1, 1, 1, 1], "dilation": [1, 1], "groups": 1}
    pool = {"kernel": [2, 2], "stride": [2, 2], "padding": [0, 0]}
    nodes: dict[str, tuple[str, dict[str, Any], list[str]]] = {
        "input": ("input", {}, []),
        "a": ("conv", conv, ["input"]),
        "fa": ("fire", {}, ["a"]),
        "b": ("conv", conv, ["input"]),
        "fb": ("fire", {}, ["b"]),
        "sum": ("add", {}, ["fa", "fb"]),
        "scaled": ("affine", {}, ["sum"]),
        "joined": ("concat", {"dim": 1}, ["scaled", "fb"]),
        "part": ("slice", {"dim": 1, "start": 1, "stop": 3}, ["joined"]),
        "turned": ("permute", {"dims": [0, 1, 3, 2]}, ["part"]),
        "pool": ("avg_pool", pool, ["turned"]),
        "large": ("upsample", {"size": [4, 4]}, ["pool"]),
        "most": ("max_pool", {**pool, "dilation": [1, 1]}, ["large"]),
        "few": ("adaptive_avg_pool", {"size": [2, 1]}, ["most"]),
        "flat": ("reshape", {"shape": [4]}, ["few"]),
        "out": ("linear", {}, ["flat"]),
    }
    nodes.update(changes)
    tensors = {
        **{f"{n}//weight": torch.randn(2, 2, 3, 3, generator=generator) for n in "ab"},
        **{f"f{n}//threshold": torch.ones(1) for n in "ab"},
        **{f"f{n}//start": torch.full((1,), 0.5) for n in "ab"},
        "scaled//scale": torch.full((2, 1, 1), 0.5),
        "out//weight": torch.randn(2, 4, generator=generator),
    }
    listed = [{"name": n, "kind": k, "settings": s, "inputs": i} for n, (k, s, i) in nodes.items()]
    content = {
        "format": "ratenorm-spiking-net", "version": 1, "nodes": listed, "output": "out", "input_shape": [2, 4, 4],
    }  # fmt: skip
    return content, tensors


def test_the_small_graph_runs(tmp_path: Path) -> None:
    content, tensors = small_graph()
    net = load(write_tensors(tmp_path / "n", tensors, content))
    x = torch.rand(3, 2, 4, 4)
    found = [simulate(net, x, 9, engine=engine).logits for engine in ("dense", "event")]
    assert torch.equal(*found)


SETTINGS = {
    "a": {"stride": [1, 1], "padding": [1, 1, 1, 1], "dilation": [1, 1], "groups": 1},
    "pool": {"kernel": [2, 2], "stride": [2, 2], "padding": [0, 0]},
}
WRONG_NODES: dict[str, dict[str, tuple[str, dict[str, Any], list[str]]]] = {
    "a sum that broadcasts": {"sum": ("add", {}, ["fa", "thin"])},
    "a sum of nothing": {"sum": ("add", {}, [])},
    "a joint of nothing": {"joined": ("concat", {"dim": 1}, [])},
    "a joint counted from behind": {"joined": ("concat", {"dim": -3}, ["scaled", "fb"])},
    "a joint of the batch": {"joined": ("concat", {"dim": 0}, ["scaled", "fb"])},
    "a slice counted from behind": {"part": ("slice", {"dim": -3, "start": 1, "stop": 3}, ["joined"])},
    "a slice from behind": {"part": ("slice", {"dim": 1, "start": -3, "stop": -1}, ["joined"])},
    "a slice past the end": {"part": ("slice", {"dim": 1, "start": 3, "stop": 5}, ["joined"])},
    "a turn of truth values": {"turned": ("permute", {"dims": [False, 1, 3, 2]}, ["part"])},
    "a turn from behind": {"turned": ("permute", {"dims": [0, 1, -1, -2]}, ["part"])},
    "a shape left open": {"flat": ("reshape", {"shape": [-1]}, ["few"])},
    "a pool of one dimension": {"pool": ("avg_pool", {"kernel": [2], "stride": [2], "padding": [0]}, ["turned"])},
    "a pool without a stride": {"pool": ("avg_pool", {**SETTINGS["pool"], "stride": []}, ["turned"])},
    "a pool of one padding": {"pool": ("avg_pool", {**SETTINGS["pool"], "padding": [0]}, ["turned"])},
    "a pool with a text": {"pool": ("avg_pool", {**SETTINGS["pool"], "ceil_mode": "no"}, ["turned"])},
    "a pool of fractions": {"pool": ("avg_pool", {**SETTINGS["pool"], "kernel": [2.0, 2.0]}, ["turned"])},
    "a window of one number": {"few": ("adaptive_avg_pool", {"size": [2]}, ["most"])},
    "an enlargement of one number": {"large": ("upsample", {"size": [4]}, ["pool"])},
    "spikes signed by a text": {"fa": ("fire", {"signed": "no"}, ["a"])},
    "one number of padding": {"a": ("conv", {**SETTINGS["a"], "padding": [1]}, ["input"])},
    "one stride": {"a": ("conv", {**SETTINGS["a"], "stride": [1]}, ["input"])},
    "an unknown padding": {"a": ("conv", {**SETTINGS["a"], "padding_mode": "valid"}, ["input"])},
    "two inputs": {"b": ("input", {}, [])},
}
WRONG_TENSORS: dict[str, dict[str, torch.Tensor]] = {
    "a scale that enlarges": {"scaled//scale": torch.ones(3, 2, 1, 1)},
    "a scale with a batch": {"scaled//scale": torch.ones(2, 2, 1, 1)},
    "a shift of another width": {"scaled//shift": torch.ones(4, 2, 1)},
    "a bias of one number": {"a//bias": torch.ones(1)},
    "a bias of another shape": {"out//bias": torch.ones(2, 1)},
    "a threshold with a batch": {"fa//threshold": torch.ones(2, 2, 1, 1)},
    "a start with a batch": {"fa//start": torch.ones(2, 2, 4, 4)},
    "no step bias": {"fa//step_bias": torch.ones(0, 1)},
    "step biases that enlarge": {"fa//step_bias": torch.ones(3, 2, 2, 4, 4)},
    "whole numbers": {"out//weight": torch.ones(2, 4, dtype=torch.int64)},
    "two kinds of numbers": {"out//weight": torch.ones(2, 4, dtype=torch.float64)},
    "half precision": {"out//weight": torch.ones(2, 4, dtype=torch.float16)},
    "complex numbers": {"out//weight": torch.ones(2, 4, dtype=torch.complex64)},
    "a weight of five dimensions": {"a//weight": torch.ones(2, 2, 3, 3, 1)},
    "a weight of one dimension": {"out//weight": torch.ones(4)},
    "a threshold below zero": {"fa//threshold": -torch.ones(1)},
}


@pytest.mark.parametrize("case", WRONG_NODES)
def test_nodes_that_convert_never_makes(case: str, tmp_path: Path) -> None:
    content, tensors = small_graph(**WRONG_NODES[case])
    if case == "a sum that broadcasts":
        thin = {"name": "thin", "kind": "slice", "settings": {"dim": 1, "start": 0, "stop": 1}, "inputs": ["fb"]}
        content["nodes"].insert(5, thin)
    with pytest.raises(FileFormatError, match="do not make a spiking network"):
        load(write_tensors(tmp_path / "n", tensors, content))


@pytest.mark.parametrize("case", WRONG_TENSORS)
def test_tensors_that_convert_never_makes(case: str, tmp_path: Path) -> None:
    content, tensors = small_graph()
    with pytest.raises(FileFormatError, match="do not make a spiking network"):
        load(write_tensors(tmp_path / "n", {**tensors, **WRONG_TENSORS[case]}, content))


@pytest.mark.parametrize("name", ["densenet", "one_dimensional", "shufflenet", "vgg"])
def test_what_is_accepted_runs_alike_on_both_engines(name: str, tmp_path: Path) -> None:
    """Networks forged at random, with a valid checksum: refused with a word, or the same on every engine."""
    x = torch.rand(2, *shape_of(name))
    file = save(convert(stranger(name), MaxNorm(), example=x, calibration=x).net, tmp_path / "net")
    tensors, content = unpacked_file(file)
    rng, ran = random.Random(name), 0
    for _ in range(30):
        new, kept = copy.deepcopy(content), dict(tensors)
        forge(new, kept, rng)
        write_tensors(file, kept, new)
        with contextlib.suppress(RatenormError):
            net = load(file)
            images = torch.rand(2, *net.input_shape)
            dense = simulate(net, images, 4, engine="dense")
            assert torch.equal(dense.logits, simulate(net, images, 4, engine="event").logits)
            ran += 1
    assert ran > 0


# -- texts that a terminal or a spreadsheet would obey -----------------------------------------------------------------

ESCAPE = "\x1b]0;owned\x07\x1b[2J"


def test_info_prints_no_escape_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(small_spiking_net(), tmp_path / "a", {"v0": ESCAPE, "calibrated": [{"method": ESCAPE}]})
    assert main(["info", str(tmp_path / "a")]) == 0
    record = records.read(GOLDEN / "run-2" / "record.json")
    record["title"] = record["runs"][0]["name"] = ESCAPE
    records.write(tmp_path / "r.json", record)
    assert main(["info", str(tmp_path / "r.json")]) == 0
    record["version"] = 99
    record["versions"]["ratenorm"] = ESCAPE
    (tmp_path / "r.json").write_text(json.dumps(record))
    assert main(["info", str(tmp_path / "r.json")]) == 1
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "\x07" not in said.out + said.err
    assert said.out.count(r"\x1b") >= 8
    assert r"\x1b" in said.err


def test_printable_keeps_what_is_harmless() -> None:
    assert printable("Ω = 2.3 µJ\n\t×") == "Ω = 2.3 µJ\n\t×"
    assert printable("a\u202eb\u2028c\x9bd") == r"a\u202eb\u2028c\x9bd"


@pytest.mark.parametrize("name", ["=1+1", "+cmd", "@SUM(A1)", "-2+3", "\t=1", " =1"])
def test_a_spreadsheet_sees_no_formula(name: str) -> None:
    record = records.read(GOLDEN / "run-2" / "record.json")
    record["runs"][0]["name"] = name
    rows = list(csv.reader(io.StringIO(all_tables([record])[0].csv())))
    assert rows[1][0].startswith("'")
    assert rows[1][0].removeprefix("'").strip() == name.strip()
    assert Table("s", "t", ("a", "b"), (("x", "-0.5"),)).csv() == "a,b\nx,-0.5\n"


@pytest.mark.parametrize("name", ["   ", "", "\t\n", "\u2003", "$x", "$\\frac{$"])
def test_a_report_bears_any_name(name: str, tmp_path: Path) -> None:
    record = records.read(GOLDEN / "run-2" / "record.json")
    for place in (record["runs"][0], record["ann"]):
        place["name"] = name
    report.save_tables([record], tmp_path / "tables")
    report.save_plots([record], tmp_path / "plots", ("svg",))
    (tmp_path / "run").mkdir()
    records.write(tmp_path / "run" / "record.json", record)
    built = report.build([tmp_path / "run"], tmp_path / "report.html")
    assert built.runs == len(record["runs"])
