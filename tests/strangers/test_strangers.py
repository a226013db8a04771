"""Strangers' networks: both engines give the same spikes, those of a plain reference, and tend to the clipped ANN."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import Conversion, convert
from ratenorm.convert.thresholds import ChannelNorm, MaxNorm, Method, Percentile, SiteScale
from ratenorm.graph.net import Graph, run
from ratenorm.simulate.result import SimResult
from ratenorm.simulate.simulate import simulate
from strangers.architectures import ARCHITECTURES, dyadic, shape_of, stranger
from strangers.reference import clipped, reference

NAMES = sorted(ARCHITECTURES)
NINTHS = ("inception", "pooled_every_way", "uneven_pools")  # averages over nine pixels are rounded in any arithmetic
METHODS = (MaxNorm(), Percentile(99.9), ChannelNorm())


@dataclass(frozen=True)
class PowersOfTwo(Method):
    """Thresholds of another method, as the next powers of two."""

    label = "powers of two"
    papers = ()
    channels: bool = False

    def scales(self, graph: Graph, calibration: Calibration | None) -> dict[str, SiteScale]:
        found = (ChannelNorm() if self.channels else MaxNorm()).scales(graph, calibration)
        return {name: SiteScale(_power(s.threshold), _power(s.amplitude)) for name, s in found.items()}


def _power(tensor: Tensor) -> Tensor:
    return torch.exp2(tensor.log2().ceil())


def images(name: str, count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, *shape_of(name), generator=torch.Generator().manual_seed(seed))


def converted(name: str, method: Method, v0: float = 0.25, seed: int = 0) -> tuple[Conversion, Tensor]:
    x = images(name, 6, seed)
    return convert(stranger(name, seed), method, example=x[:1], calibration=x, v0=v0), x


def assert_same(a: SimResult, b: SimResult) -> None:
    assert torch.equal(a.logits, b.logits)
    for one, other in zip(a.layers, b.layers, strict=True):
        assert torch.equal(one.counts, other.counts), one.name
        assert torch.equal(one.potential, other.potential), one.name
        assert torch.equal(one.spikes, other.spikes), one.name
        assert torch.equal(one.synaptic_ops, other.synaptic_ops), one.name
    for (_, one), (_, other) in zip(a.relays, b.relays, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.label)
@pytest.mark.parametrize("name", NAMES)
def test_both_engines_give_the_same_spikes(name: str, method: Method) -> None:
    conversion, x = converted(name, method)
    assert conversion.exact
    assert not conversion.inexact
    dense = simulate(conversion.net, x[:3], 64, engine="dense")
    assert sum(float(layer.counts.sum()) for layer in dense.layers) > 0
    assert_same(dense, simulate(conversion.net, x[:3], 64, engine="event"))
    assert torch.equal(dense.logits, simulate(conversion.net, x[:3], 64, engine="auto").logits)


@pytest.mark.parametrize("name", NAMES)
def test_neither_the_batch_nor_the_chunk_changes_an_answer(name: str) -> None:
    conversion, x = converted(name, MaxNorm())
    whole = simulate(conversion.net, x, 20, engine="dense")
    for options in ({"engine": "dense"}, {"engine": "dense", "chunk": 7}, {"engine": "event"}):
        alone = torch.cat([simulate(conversion.net, one, 20, **options).logits for one in x.split(1)], 1)
        assert torch.equal(alone, whole.logits), options


@pytest.mark.parametrize("channels", [False, True], ids=["layer", "channel"])
@pytest.mark.parametrize("name", NAMES)
def test_every_spike_is_that_of_the_plain_reference(name: str, channels: bool) -> None:
    """With numbers of few digits nothing is rounded, wherever it is computed: conversion and engines are exact."""
    x = (images(name, 3) * 8).round() / 8
    model = dyadic(name)
    v0 = 0.3 if name in NINTHS else 0.5  # 0.3: no potential ever equals its threshold
    conversion = convert(model, PowersOfTwo(channels), example=x[:1], calibration=x, v0=v0)
    scales = {site: (s.threshold, s.amplitude) for site, s in conversion.scales.items()}
    outputs, counts = reference(model, scales, x, 32, v0)
    assert sum(float(count.sum()) for count in counts.values()) > 0
    for engine in ("dense", "event"):
        found = simulate(conversion.net, x, 32, engine=engine)
        for layer in found.layers:
            assert torch.equal(layer.counts.double(), counts[layer.name]), layer.name
        torch.testing.assert_close(found.logits.double(), outputs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.label)
@pytest.mark.parametrize("name", NAMES)
def test_rounding_does_not_move_the_limit(name: str, method: Method) -> None:
    """What the spiking network tends to is the clipped ANN: within a thousandth, for images it has not seen."""
    conversion, _ = converted(name, method)
    x = images(name, 8, seed=1)
    scales = {site: (s.threshold, s.amplitude) for site, s in conversion.scales.items()}
    wanted = clipped(stranger(name), scales, x)
    moved = float((run(conversion.net, x).double() - wanted).norm() / wanted.norm())
    assert moved <= 1e-3, moved


@pytest.mark.parametrize("name", NAMES)
def test_outputs_approach_the_clipped_network_at_slope_minus_one(name: str) -> None:
    """The error times T stays within bounds: fitted to T = 16 … 512 in the logarithm, the power of T is near -1."""
    conversion, x = converted(name, MaxNorm(), v0=0.5)
    wanted = run(conversion.net, x)
    logits = simulate(conversion.net, x, 512, engine="event").logits  # the same as on the dense engine, and sooner
    gaps = (logits - wanted).norm(dim=2).mean(1)[15:].double()
    time = torch.arange(16, 513).double().log()
    weight = 1.0 / torch.arange(16, 513).double()  # every doubling of T counts alike
    centred = time - (weight * time).sum() / weight.sum()
    slope = float((weight * centred * gaps.log()).sum() / (weight * centred.square()).sum())
    assert -1.4 < slope < -0.75, slope
