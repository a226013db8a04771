"""NeuroBench's metrics: counted here by brute force, in a few laws, and kept in records. The package itself is asked in
benchmarks/neurobench_check.py, which needs an environment of its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ratenorm as rn
from builders import randomise_batch_norm_, tiny_cnn
from ratenorm.convert.convert import Conversion, convert
from ratenorm.graph.ops import Conv, Fire, Linear
from ratenorm.simulate.neurobench import images_measured, neurobench_metrics


@pytest.fixture(scope="module")
def made() -> tuple[Conversion, Tensor]:
    torch.manual_seed(0)
    x = torch.rand(5, 1, 8, 8)
    x[:, :, 0] = 0.0
    model = randomise_batch_norm_(tiny_cnn())
    return convert(model.eval(), "max", example=x[:1], calibration=torch.rand(32, 1, 8, 8), v0=0.5), x


def test_operations_are_those_of_a_binary_network(made: tuple[Conversion, Tensor]) -> None:
    """Every weight met by every spike, counted with a convolution of ones over the spikes of each step."""
    conversion, x = made
    net, steps = conversion.net, 6
    found = neurobench_metrics(net, x, steps)
    simulation = rn.simulate(net, x, steps)
    first, second = (net[name].op.weight for name in ("0", "4"))  # type: ignore[union-attr]
    last = next(n.op.weight for n in net.nodes if n.op.kind == "linear")  # type: ignore[attr-defined]
    macs = float(F.conv2d((x != 0).double(), (first != 0).double(), padding=1).sum())
    assert found["SynapticOperations"]["Effective_MACs"] == pytest.approx(steps * macs / len(x))
    assert found["Effective_MACs_once"] == pytest.approx(macs / len(x))
    counts = [layer.counts.double() for layer in simulation.layers]
    wide = (second != 0).double().repeat_interleave(2, 2).repeat_interleave(2, 3)  # the pool is part of the layer
    acs = float(F.conv2d(counts[0], wide, stride=2, padding=2).sum())
    pooled = F.avg_pool2d(counts[1], 2, divisor_override=1).flatten(1) if last.shape[1] < counts[1][0].numel() else None
    acs += float(F.linear(counts[1].flatten(1) if pooled is None else pooled, (last != 0).double()).sum())
    assert found["SynapticOperations"]["Effective_ACs"] == pytest.approx(acs / len(x))


def test_without_zero_weights_acs_are_our_synaptic_operations(made: tuple[Conversion, Tensor]) -> None:
    conversion, x = made
    nodes = tuple(
        replace(n, op=replace(n.op, weight=n.op.weight + (n.op.weight == 0) * 2.0**-10))
        if isinstance(n.op, Conv | Linear)
        else n
        for n in conversion.net.nodes
    )
    net = replace(conversion.net, nodes=nodes)
    ours = float(rn.simulate(net, x, 7).synaptic_ops.sum()) / len(x)
    found = neurobench_metrics(net, x, 7)
    assert found["SynapticOperations"]["Effective_ACs"] == pytest.approx(ours)
    assert found["ConnectionSparsity"] == 0.0


def test_sparsity_and_updates(made: tuple[Conversion, Tensor]) -> None:
    conversion, x = made
    net, steps = conversion.net, 5
    found = neurobench_metrics(net, x, steps)
    simulation = rn.simulate(net, x, steps)
    neurons = sum(net.neurons.values())
    fired = sum(float(layer.counts.sum()) for layer in simulation.layers)
    assert found["ActivationSparsity"] == pytest.approx(1 - fired / (neurons * steps * len(x)))
    after = [[layer.potential for layer in rn.simulate(net, x, t).layers] for t in range(1, steps + 1)]
    moved = sum(float((a != b).sum()) for one, two in pairwise(after) for a, b in zip(one, two, strict=True))
    assert found["MembraneUpdates"] == neurons + moved / len(x)
    assert moved > 0
    assert found["Footprint"] == 4 * net.parameters
    silent = with_no_current(net)
    still = neurobench_metrics(silent, x, steps)
    assert still["MembraneUpdates"] == neurons  # the first step counts all, as in NeuroBench
    assert still["SynapticOperations"]["Effective_ACs"] == 0.0
    assert still["ConnectionSparsity"] == 1.0
    assert still["SynapticOperations"]["Dense"] == found["SynapticOperations"]["Dense"]


def with_no_current(net: rn.SpikingNet) -> rn.SpikingNet:
    """Every weight and bias 0."""
    return replace(
        net,
        nodes=tuple(
            n
            if isinstance(n.op, Fire)
            else replace(n, op=replace(n.op, **{k: 0 * t for k, t in n.op.tensors().items()}))
            for n in net.nodes
        ),
    )


class _TwoPopulations(nn.Module):
    """Their spikes meet in a sum, which is not binary."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.a(x)) + torch.relu(self.b(x)))


def test_sums_of_spikes_are_macs() -> None:
    torch.manual_seed(1)
    x = torch.rand(64, 4)
    net = convert(_TwoPopulations(), "fixed:0.25", example=x[:1]).net
    found = neurobench_metrics(net, x, 4)
    assert found["SynapticOperations"]["Effective_MACs"] > found["Effective_MACs_once"] > 4 * 12 - 1e-9


def test_max_pools_step_biases_and_signed_spikes_are_run_as_they_are() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.Linear(4 * 9, 3))
    x = torch.rand(4, 1, 6, 6)
    net = convert(model, "max", example=x[:1], calibration=x).net
    signed = replace(
        net,
        nodes=tuple(
            replace(n, op=replace(n.op, signed=True, step_bias=torch.tensor([[0.5], [-1.0], [0.0]])))
            if isinstance(n.op, Fire)
            else n
            for n in net.nodes
        ),
    )
    for one in (net, signed):
        fired = sum(float(layer.spikes.sum()) for layer in rn.simulate(one, x, 6, engine="dense").layers)
        found = neurobench_metrics(one, x, 6)
        assert found["ActivationSparsity"] == pytest.approx(1 - fired / (sum(one.neurons.values()) * 6 * 4))


def test_poisson_coding_of_amplitude_one_needs_no_macs() -> None:
    torch.manual_seed(3)
    model, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), torch.rand(8, 4)
    net = convert(model, "max", example=x[:1], calibration=x).net
    found = neurobench_metrics(net, x, 5, coding=rn.Poisson(1.0, seed=3))
    assert found["SynapticOperations"]["Effective_MACs"] == 0.0
    assert found["SynapticOperations"]["Effective_ACs"] > 0.0


def test_an_evaluation_measures_a_few_images() -> None:
    assert [images_measured(1000, steps) for steps in (1, 32, 64, 640, 5000)] == [20, 20, 10, 1, 1]
    assert images_measured(3, 1) == 3


def test_records_and_reports_hold_them(made: tuple[Conversion, Tensor], tmp_path: Any) -> None:
    from ratenorm.convert.thresholds import MaxNorm
    from ratenorm.records.schema import Invalid, check_record
    from ratenorm.report.measures import runs_of
    from ratenorm.report.tables import neurobench_table
    from ratenorm.workflows.record import ann_entry, make_record, run_entry

    conversion, x = made
    result = rn.evaluate(conversion, [(x, torch.zeros(5, dtype=torch.int64))], 4, neurobench=True)
    run = run_entry("max", "tiny", conversion.net, MaxNorm(), 0.5, result)
    assert run["neurobench"] == neurobench_metrics(conversion, x, 4)
    data = {"name": "toy", "split": "test", "images": 5, "classes": ["0", "1", "2"]}
    ann = ann_entry("tiny", conversion.analog, 0.5, None)
    record = make_record("evaluate", "t", {}, seed=0, seconds=1.0, data=data, ann=ann, runs=[run])
    check_record(record)
    table = neurobench_table(runs_of([record]))
    assert table.rows[0][1] == "5 × 4"
    assert "yik2025" in rn.cite(record)
    run["neurobench"]["ActivationSparsity"] = 2.0
    with pytest.raises(Invalid, match="ActivationSparsity"):
        check_record(record)
