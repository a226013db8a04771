"""Tables for hardware run in plain NumPy with our logits; chips are estimated from their descriptions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported import converted, sayable
from hypothesis import HealthCheck, given, settings
from torch import nn

import ratenorm as rn
from random_networks import Recipe, recipes
from ratenorm.convert.convert import Conversion, convert
from ratenorm.errors import CalibrationError, ConversionError, FileFormatError, UsageError
from ratenorm.interop import reference_simulator
from ratenorm.interop.chips import CHIPS, chip_fit, load_chip
from ratenorm.interop.tables import export_tables


@pytest.mark.parametrize("which", ["cnn", "residual"])
def test_plain_numpy_gives_our_logits(which: str, request: Any, tmp_path: Path) -> None:
    net = request.getfixturevalue(which).net
    export_tables(net, tmp_path / "tables")
    x = torch.rand(5, *net.input_shape) - 0.3
    np.save(tmp_path / "x.npy", x.numpy())
    command = [sys.executable, "-I", str(tmp_path / "tables" / "simulate.py"), "x.npy", "20", "logits.npy"]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert np.array_equal(np.load(tmp_path / "logits.npy"), rn.simulate(net, x, 20).logits.numpy())


def test_the_reference_simulator_is_short_and_needs_numpy_alone() -> None:
    text = Path(reference_simulator.__file__).read_text("utf-8")
    assert len(text.splitlines()) <= 60
    imported = {line.split()[1] for line in text.splitlines() if line.startswith(("import", "from"))}
    assert imported == {"json", "sys", "pathlib", "numpy"}


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(recipe=recipes(most=2).map(sayable))
def test_any_network_that_can_be_written_runs_the_same(recipe: Recipe, tmp_path_factory: Any) -> None:
    x, folder = recipe.images(4), tmp_path_factory.mktemp("tables")
    try:
        net = convert(recipe.build(), "channel", example=x[:1], calibration=recipe.images(), v0=0.5).net
        export_tables(net, folder)
    except (CalibrationError, ConversionError):
        return
    found = reference_simulator.simulate(folder, x.numpy(), 6)
    assert np.array_equal(found, rn.simulate(net, x, 6, engine="dense").logits.numpy())


def test_step_biases_and_one_dimension(tmp_path: Path) -> None:
    from dataclasses import replace

    from ratenorm.graph.ops import Fire

    model = nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(16, 3))
    net = converted(model, (2, 8)).net
    nodes = tuple(
        replace(n, op=replace(n.op, step_bias=torch.tensor([[0.5], [-0.3], [0.0]]))) if isinstance(n.op, Fire) else n
        for n in net.nodes
    )
    net, x = replace(net, nodes=nodes), torch.rand(3, 2, 8)
    export_tables(net, tmp_path)
    assert np.array_equal(reference_simulator.simulate(tmp_path, x.numpy(), 9), rn.simulate(net, x, 9).logits.numpy())


def test_the_index_says_what_hardware_needs(cnn: Conversion, tmp_path: Path) -> None:
    import hashlib

    tables = export_tables(cnn, tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    assert index == json.loads(json.dumps(tables.index))
    for name, digest in index["sha256"].items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
    weights = [u for u in index["units"] if u["kind"] == "weights"]
    for unit in weights:
        whole = np.load(tmp_path / unit["files"]["weight"])
        assert whole.dtype.kind == "i"
        assert np.abs(whole).max() < 2 ** (unit["weight_bits"] - 1)
        scale = np.load(tmp_path / unit["files"]["scale"])
        assert (np.frexp(scale)[0] == 0.5).all()  # powers of two
    assert [u["form"] for u in weights] == ["double", "grid", "grid", "grid"]  # the second averages
    assert "weights of" in str(tables)
    with pytest.raises(UsageError, match="something already"):
        export_tables(cnn, tmp_path)
    export_tables(cnn, tmp_path, overwrite=True)


# -- chips -------------------------------------------------------------------------------------------------------------


def test_the_chips_that_come_with_the_package_name_their_source() -> None:
    for name in CHIPS:
        chip = load_chip(name)
        assert len(chip.source) > 5
        assert chip.notes


def test_a_fit_counts_neurons_synapses_and_fan_in(cnn: Conversion, tmp_path: Path) -> None:
    """Counted by hand: 6 maps of 9x9 after 3x3 of one channel; 8 maps of 4x4 after 3x3 of 6 channels pooled 2x2."""
    fit = chip_fit(cnn, "loihi2")
    first, second, output = fit.layers
    assert (first.neurons, first.fan_in, first.synapses) == (6 * 81, 9, 6 * (3 * 9 - 2) ** 2)
    assert (second.neurons, second.fan_in, second.synapses) == (8 * 16, 9 * 6 * 4, 8 * 6 * 4 * (3 * 4 - 2) ** 2)
    assert (output.neurons, output.fan_in, output.synapses) == (5, 8 * 16, 5 * 8 * 16)
    assert fit.cores == 3
    assert "Estimate" in str(fit)
    assert "Source" in str(fit)


def test_obstacles_are_named(cnn: Conversion, tmp_path: Path) -> None:
    small = {
        "name": "small", "cores": 2, "neurons_per_core": 100, "synapses_per_core": 200, "fan_in": 8, "weight_bits": 4,
        "shares_weights": False, "notes": [], "source": "made up",
    }  # fmt: skip
    (tmp_path / "small.json").write_text(json.dumps(small))
    fit = chip_fit(cnn, tmp_path / "small.json")
    text = str(fit)
    assert "fan-in of 9" in text
    assert "the chip's have 4" in text
    assert fit.chips == -(-fit.cores // 2)
    assert fit.to_json()["estimate"] is True
    for bad in ('{"name": 1}', "[", "[1]", json.dumps({**small, "cores": 0}), json.dumps({**small, "notes": [1]})):
        (tmp_path / "bad.json").write_text(bad)
        with pytest.raises(FileFormatError, match="neurons_per_core"):
            load_chip(tmp_path / "bad.json")
    with pytest.raises(UsageError, match="loihi2, spinnaker2, generic"):
        load_chip("loihi3")
