"""NIR files: what is written is what runs, what is read back is what was written, and nothing else is accepted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from exported import converted, sayable
from hypothesis import HealthCheck, given, settings
from torch import nn

import ratenorm as rn
from builders import randomise_batch_norm_
from random_networks import Recipe, recipes
from ratenorm.convert.convert import Conversion, convert, spiking, with_start
from ratenorm.errors import (
    CalibrationError,
    ConversionError,
    ExchangeWarning,
    FileFormatError,
    RatenormError,
    UsageError,
)
from ratenorm.graph.net import INPUT, Node, SpikingNet
from ratenorm.graph.ops import Conv, Fire, Input, Linear, MaxPool
from ratenorm.interop.nir_export import KEY, SEAL, export_nir, nir_graph
from ratenorm.interop.nir_import import import_nir, import_nir_with_about
from ratenorm.interop.units import POOLS, express
from ratenorm.workflows.fingerprint import of_graph

nir = pytest.importorskip("nir", reason="NIR files need the packages nir and h5py (ratenorm[nir])")
pytest.importorskip("h5py", reason="NIR files need the packages nir and h5py (ratenorm[nir])")


def write(net: SpikingNet | Conversion, path: Path, **options: Any) -> Path:
    return export_nir(net, path, warn=False, **options).path


def without_metadata(net: SpikingNet, pools: Any = "fold") -> Any:
    """The graph as a simulator sees it that knows NIR only."""
    graph = nir_graph(net, express(net, pools), pools, {})
    graph.metadata = {}
    for node in graph.nodes.values():
        node.metadata = {}
    return graph


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize("which", ["cnn", "residual"])
def test_what_is_read_back_is_what_was_written(which: str, pools: Any, request: Any, tmp_path: Path) -> None:
    net = request.getfixturevalue(which).net
    again, about = import_nir_with_about(write(net, tmp_path / "n.nir", pools=pools, about={"classes": ["a", "b"]}))
    assert again.same_as(net)
    assert of_graph(again) == of_graph(net)
    assert about == {"classes": ["a", "b"]}
    nir.write(tmp_path / "copied.nir", nir.read(tmp_path / "n.nir"))  # our seal is gone, the meaning is not
    assert import_nir(tmp_path / "copied.nir").same_as(net)
    assert import_nir(nir.read(tmp_path / "n.nir")).same_as(net)


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize("which", ["cnn", "residual"])
def test_the_nodes_alone_give_the_same_spikes(which: str, pools: Any, request: Any) -> None:
    """The graph means what the network does: read without our metadata, as a network of soft-reset neurons."""
    net = with_start(request.getfixturevalue(which).net, 0.0)
    seen = import_nir(without_metadata(net, pools), reset="subtract")
    assert not seen.same_as(net)
    x = torch.rand(6, *net.input_shape)
    ours, theirs = rn.simulate(net, x, 24), rn.simulate(seen, x, 24)
    assert torch.equal(ours.logits, theirs.logits)
    for a, b in zip(ours.layers, theirs.layers, strict=True):
        assert torch.equal(a.counts, b.counts)
        assert torch.equal(a.spikes, b.spikes)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recipe=recipes(most=2).map(sayable))
def test_any_network_comes_back_or_is_refused(recipe: Recipe) -> None:
    x = recipe.images()
    method = "channel" if recipe.seed % 2 else "max"
    try:
        conversion = convert(recipe.build(), method, example=x[:1], calibration=x, v0=0.5)
    except CalibrationError:  # a layer that never fires
        return
    for pools in POOLS:
        try:
            graph = nir_graph(conversion.net, express(conversion.net, pools), pools, {})
        except ConversionError:
            continue
        assert import_nir(graph).same_as(conversion.net)
        bare = with_start(conversion.net, 0.0)
        seen = import_nir(without_metadata(bare, pools), reset="subtract")
        if not set(bare.sums.in_double) - {"first"}:
            ours, theirs = (rn.simulate(n, x, 8, engine="dense").logits for n in (bare, seen))
            assert torch.equal(ours, theirs)


def test_thresholds_that_are_powers_of_two_become_one(cnn: Conversion, tmp_path: Path) -> None:
    """By channel too: their inverse goes into the weights, which loses no bit."""
    thresholds = iter([torch.tensor([0.25, 0.5, 1.0, 2.0, 4.0, 8.0]).view(-1, 1, 1), torch.tensor([4.0])])
    scales = {name: replace(s, threshold=next(thresholds)) for name, s in cnn.scales.items()}
    net = spiking(cnn.analog, scales, 0.25)
    graph = nir_graph(net, express(net), "fold", {})
    assert all((n.v_threshold == 1.0).all() for n in graph.nodes.values() if isinstance(n, nir.IF))
    assert import_nir(graph).same_as(net)
    seen = import_nir(without_metadata(with_start(net, 0.0)), reset="subtract")
    x = torch.rand(4, *net.input_shape)
    assert torch.equal(rn.simulate(with_start(net, 0.0), x, 16).logits, rn.simulate(seen, x, 16).logits)


def test_what_nir_cannot_say_is_said(cnn: Conversion, tmp_path: Path) -> None:
    with pytest.warns(ExchangeWarning, match="subtract their threshold"):
        file = export_nir(cnn, tmp_path / "n.nir")
    text = str(file)
    for word in ("soft reset", "v >= v_threshold", "do not start at 0", "float64", "same frame"):
        assert word in text
    content = json.loads(json.loads(nir.read(file.path).metadata[KEY])["content"])
    assert content["neuron"]["reset"] == "subtract"
    assert "mean" in content["readout"]


class _Refused(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first, self.layer = nn.Conv2d(2, 4, 3, padding=1), layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.relu(self.first(x))).flatten(1)[:, :7]


class _Cat(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x], 1)


@pytest.mark.parametrize(
    ("layer", "what", "remedy"),
    [
        (nn.MaxPool2d(2), "max_pool", "max_pool='average'"),
        (_Cat(), "concat", "torch.cat"),
        (nn.Upsample(scale_factor=2), "upsample", "keep the size"),
        (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), "reflect", "padding_mode='zeros'"),
        (nn.AdaptiveAvgPool2d(5), "different sizes", "divides the input"),
        (nn.Conv2d(4, 4, (1, 2)), "kernel", "square kernel"),
    ],
)
def test_what_nir_has_no_node_for_is_refused_by_name(layer: nn.Module, what: str, remedy: str) -> None:
    conversion = converted(_Refused(layer), (2, 8, 8))
    with pytest.raises(ConversionError, match=r"Exporting to NIR: '[\w.]+'") as refusal:
        express(conversion.net)
    assert what in str(refusal.value)
    assert remedy in str(refusal.value)


def test_wrong_calls(cnn: Conversion, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fold, sum, average"):
        express(cnn.net, "max")  # type: ignore[arg-type]
    with pytest.raises(ConversionError, match="float32"):
        express(cnn.net.to(torch.float64))
    with pytest.raises(UsageError, match="reset"):
        import_nir(tmp_path / "x", reset="zero")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="dt"):
        import_nir(tmp_path / "x", dt=-1.0)
    with pytest.raises(FileFormatError, match="no such file"):
        import_nir(tmp_path / "x")
    with pytest.raises(UsageError, match="got int"):
        import_nir(3)
    signed = replace(cnn.net, nodes=tuple(
        replace(n, op=replace(n.op, signed=True)) if isinstance(n.op, Fire) else n for n in cnn.net.nodes
    ))  # fmt: skip
    with pytest.raises(ConversionError, match="negative spikes"):
        express(signed)


# -- graphs of others --------------------------------------------------------------------------------------------------


def small_graph(**changes: Any) -> Any:
    """Input, Affine, IF, Affine, Output, as any simulator writes it."""
    import numpy as np

    one = lambda *shape: np.ones(shape, np.float32)  # noqa: E731
    nodes = {
        "input": nir.Input({"input": np.array([3])}),
        "a": nir.Affine(one(4, 3), one(4)),
        "n": nir.IF(r=one(4), v_threshold=2 * one(4), v_reset=0 * one(4)),
        "b": nir.Affine(one(2, 4), one(2)),
        "output": nir.Output({"output": np.array([2])}),
    }
    edges = [("input", "a"), ("a", "n"), ("n", "b"), ("b", "output")]
    nodes |= changes.pop("nodes", {})
    return nir.NIRGraph(nodes, changes.pop("edges", edges), type_check=False)


def test_a_graph_of_others_needs_the_assumption_of_soft_reset(tmp_path: Path) -> None:
    nir.write(tmp_path / "others.nir", small_graph())
    with pytest.raises(UsageError, match=r"'n' is an IF neuron.*reset='subtract'"):
        import_nir(tmp_path / "others.nir")
    net = import_nir(tmp_path / "others.nir", reset="subtract")
    [population] = net.populations
    assert isinstance(population.op, Fire)
    assert float(population.op.threshold) == 2.0
    assert rn.simulate(net, torch.rand(2, 3), 4).logits.shape == (4, 2, 2)


def test_r_and_dt_give_the_current(tmp_path: Path) -> None:
    import numpy as np

    fast = nir.IF(r=np.full(4, 1e4, np.float32), v_threshold=np.ones(4, np.float32), v_reset=np.zeros(4, np.float32))
    with pytest.raises(UsageError, match=r"dt = 0\.0001"):
        import_nir(small_graph(nodes={"n": fast}), reset="subtract")
    plain = import_nir(small_graph(nodes={"n": fast}), reset="subtract", dt=1e-4)
    assert [n.op.kind for n in plain] == ["input", "linear", "fire", "linear"]
    double = import_nir(small_graph(nodes={"n": fast}), reset="subtract", dt=2e-4)
    assert [n.op.kind for n in double] == ["input", "linear", "affine", "fire", "linear"]


def bad_graphs() -> dict[str, tuple[Any, str]]:
    import numpy as np

    one = lambda *shape: np.ones(shape, np.float32)  # noqa: E731
    nan = one(4, 3) * np.nan
    lif = nir.LIF(tau=one(4), r=one(4), v_leak=0 * one(4), v_threshold=one(4), v_reset=0 * one(4))
    hard = nir.IF(r=one(4), v_threshold=one(4), v_reset=-one(4))
    below = nir.IF(r=one(4), v_threshold=-one(4), v_reset=0 * one(4))
    wide = nir.IF(r=one(5), v_threshold=one(5), v_reset=0 * one(5))
    edges = [("input", "a"), ("a", "n"), ("n", "b"), ("b", "output")]
    return {
        "a cycle": (small_graph(edges=[*edges, ("b", "n")]), "cycle"),
        "a leak": (small_graph(nodes={"n": lif}), "leaky neuron"),
        "a delay": (small_graph(nodes={"n": nir.Delay(one(4))}), "delays spikes"),
        "NaN": (small_graph(nodes={"a": nir.Affine(nan, one(4))}), "NaN"),
        "shapes": (small_graph(nodes={"b": nir.Affine(one(2, 5), one(2))}), "shapes do not fit"),
        "neurons": (small_graph(nodes={"n": wide}), "shapes do not fit"),
        "output": (small_graph(nodes={"output": nir.Output({"output": np.array([3])})}), "shapes do not fit"),
        "reset": (small_graph(nodes={"n": hard}), "resets to 1"),
        "threshold": (small_graph(nodes={"n": below}), "must be positive"),
        "loose": (small_graph(nodes={"z": nir.Affine(one(2, 2), one(2))}), "joined to nothing"),
        "two edges": (small_graph(edges=[*edges, ("a", "n")]), "two edges"),
        "no such node": (small_graph(edges=[*edges, ("a", "zz")]), "not there"),
        "two inputs": (small_graph(nodes={"i2": nir.Input({"input": np.array([3])})}), "2 nodes of the kind Input"),
        "no output": (small_graph(edges=edges[:-1]), "joined to nothing"),
    }


@pytest.mark.parametrize("what", list(bad_graphs()))
def test_a_bad_graph_is_refused_with_its_reason(what: str) -> None:
    graph, reason = bad_graphs()[what]
    with pytest.raises(RatenormError, match=reason):
        import_nir(graph, reset="subtract")


def test_an_unknown_kind_of_node_is_named(tmp_path: Path) -> None:
    import h5py

    nir.write(tmp_path / "n.nir", small_graph())
    with h5py.File(tmp_path / "n.nir", "r+") as file:
        del file["node/nodes/n/type"]
        file["node/nodes/n/type"] = "Izhikevich"
    with pytest.raises(ConversionError, match="'Izhikevich'"):
        import_nir(tmp_path / "n.nir", reset="subtract")


# -- damaged files -----------------------------------------------------------------------------------------------------


def test_a_changed_weight_edge_or_word_is_noticed(cnn: Conversion, tmp_path: Path) -> None:
    """Also where the file was written again by nir, without our seal."""
    write(cnn, tmp_path / "n.nir")
    graph = nir.read(tmp_path / "n.nir")
    weights = next(n for n in graph.nodes.values() if isinstance(n, nir.Conv2d))
    weights.weight[0, 0, 0, 0] += 1.0
    with pytest.raises(FileFormatError, match="do not belong together"):
        import_nir(graph)
    graph = nir.read(tmp_path / "n.nir")
    graph.metadata[KEY] = graph.metadata[KEY].replace("subtract", "subtrakt")
    with pytest.raises(FileFormatError, match="do not belong together"):
        import_nir(graph)


def test_metadata_of_another_network_is_noticed(cnn: Conversion, residual: Conversion, tmp_path: Path) -> None:
    """A file whose checksum fits, but whose metadata tells of another graph, gives no network."""
    from ratenorm.interop.nir_export import content_of, digest_of_graph
    from ratenorm.io.files import to_json

    expressed = express(cnn.net)
    graph = nir_graph(cnn.net, expressed, "fold", {})
    other = with_start(cnn.net, 0.25)
    content = content_of(other, express(other), "fold", {}, ())
    content["nodes"][1]["settings"]["stride"] = [2, 2]
    graph.metadata = {KEY: to_json({"content": to_json(content), "sha256": digest_of_graph(graph.to_dict(), content)})}
    with pytest.raises(FileFormatError):
        import_nir(graph)


def test_every_cut_and_every_changed_byte_is_noticed(cnn: Conversion, tmp_path: Path) -> None:
    data = write(cnn, tmp_path / "n.nir").read_bytes()
    assert data[-64 - len(SEAL) : -64] == SEAL
    bad = tmp_path / "bad.nir"
    for place in range(0, len(data), max(1, len(data) // 150)):
        bad.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        with pytest.raises(FileFormatError):
            import_nir(bad)
    for length in range(0, len(data) - 70, max(1, len(data) // 50)):
        bad.write_bytes(data[:length])
        with pytest.raises(FileFormatError):
            import_nir(bad)


def test_a_file_that_points_elsewhere_is_refused(cnn: Conversion, tmp_path: Path) -> None:
    import h5py

    nir.write(tmp_path / "n.nir", small_graph())
    with h5py.File(tmp_path / "n.nir", "r+") as file:
        del file["node/nodes/a/weight"]
        file["node/nodes/a/weight"] = h5py.ExternalLink("/etc/passwd", "x")
    with pytest.raises(FileFormatError, match="link to another place"):
        import_nir(tmp_path / "n.nir", reset="subtract")
    with h5py.File(tmp_path / "n.nir", "r+") as file:
        del file["node/nodes/a/weight"]
        file.create_dataset("node/nodes/a/weight", shape=(2**20, 2**20), dtype="f4", chunks=(1024, 1024))
    with pytest.raises(FileFormatError, match="numbers"):
        import_nir(tmp_path / "n.nir", reset="subtract")


def test_a_spiking_output_and_a_network_of_one_layer_can_be_said(tmp_path: Path) -> None:
    one = Fire(torch.tensor([0.75]), torch.tensor([0.25]))
    nodes = (Node(INPUT, Input()), Node("w", Linear(torch.eye(3), None), (INPUT,)), Node("s", one, ("w",)))
    net = SpikingNet(nodes, "s", (3,))
    assert import_nir(write(net, tmp_path / "n.nir")).same_as(net)


def test_one_dimension_of_space(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(16, 3))
    net = converted(randomise_batch_norm_(model), (2, 8)).net
    assert import_nir(write(net, tmp_path / "n.nir")).same_as(net)
    bare = with_start(net, 0.0)
    seen = import_nir(without_metadata(bare), reset="subtract")
    x = torch.rand(3, 2, 8)
    assert torch.equal(rn.simulate(bare, x, 12).logits, rn.simulate(seen, x, 12).logits)


def test_step_biases_come_back(cnn: Conversion, tmp_path: Path) -> None:
    nodes = tuple(
        replace(n, op=replace(n.op, step_bias=torch.tensor([[0.5], [-0.25], [0.0]]))) if isinstance(n.op, Fire) else n
        for n in cnn.net.nodes
    )
    net = replace(cnn.net, nodes=nodes)
    file = export_nir(net, tmp_path / "n.nir", warn=False)
    assert any("Step biases" in note for note in file.notes)
    assert import_nir(file.path).same_as(net)


def test_a_max_pool_is_no_part_of_a_graph_by_hand() -> None:
    """Also networks that were not made by `convert` are refused by name."""
    pool = MaxPool((2, 2), (2, 2), (0, 0), (1, 1))
    fire = Fire(torch.ones(1), torch.zeros(1))
    conv = Conv(torch.ones(1, 1, 1, 1), None)
    nodes = (Node(INPUT, Input()), Node("c", conv, (INPUT,)), Node("s", fire, ("c",)), Node("p", pool, ("s",)))
    with pytest.raises(ConversionError, match="'p' is a max_pool"):
        express(SpikingNet(nodes, "p", (1, 4, 4)))


def test_a_file_that_lost_our_metadata_is_not_a_file_of_others(cnn: Conversion, tmp_path: Path) -> None:
    """Found by mutation: its neurons would have started from 0."""
    graph = nir.read(write(cnn, tmp_path / "n.nir"))
    graph.metadata = {}
    with pytest.raises(FileFormatError, match="which says how they are reset, is gone"):
        import_nir(graph, reset="subtract")
