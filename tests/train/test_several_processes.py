"""What several processes add up, without starting any: sums are doubled, statistics are those of one batch."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from builders import tiny_conversion
from ratenorm import distributed
from ratenorm.convert.observe import OmegaCeiling
from ratenorm.distributed import World
from ratenorm.errors import UsageError
from ratenorm.simulate.evaluate import evaluate
from ratenorm.train.global_batch_norm import _forward, global_batch_norm


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_over_all_processes_is_batch_norm(affine: bool, momentum: float | None) -> None:
    ours, torchs = (nn.BatchNorm2d(3, affine=affine, momentum=momentum) for _ in range(2))
    x = torch.randn(6, 3, 4, 4, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    for _ in range(2):
        a, b = _forward(ours, x), torchs(y)
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    (a * torch.arange(4.0)).sum().backward()
    (b * torch.arange(4.0)).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-4)
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, torchs.state_dict()[name], rtol=1e-4, atol=1e-5)
    ours.eval()
    torchs.eval()
    torch.testing.assert_close(_forward(ours, x), torchs(x), rtol=1e-4, atol=1e-5)


class Exchange:
    """Threads in the place of processes: `total` waits for all of them and adds up what they brought."""

    def __init__(self, parties: int) -> None:
        self.parties, self.brought = parties, [torch.empty(0)] * parties
        self.barrier = threading.Barrier(parties, timeout=60)
        self.rank = threading.local()

    def total(self, tensor: Tensor) -> Tensor:
        self.brought[self.rank.value] = tensor
        self.barrier.wait()
        summed = torch.stack(self.brought).sum(0)
        self.barrier.wait()
        return summed

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        def ranked(rank: int) -> Any:
            self.rank.value = rank
            return work(rank)

        with ThreadPoolExecutor(self.parties) as pool:
            return list(pool.map(ranked, range(self.parties)))


def _normalised(layer: nn.Module, x: Tensor, weights: Tensor) -> list[Tensor]:
    """Output, gradients and running statistics of BatchNorm on one part of a batch."""
    own = x.detach().clone().requires_grad_()
    y = _forward(layer, own)  # type: ignore[arg-type]
    (y * weights).sum().backward()
    return [y.detach(), own.grad, layer.weight.grad, layer.bias.grad, layer.running_mean, layer.running_var]


@pytest.mark.parametrize("shape", [(12, 5, 6, 6), (12, 5)], ids=["images", "vectors"])
@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (5.0, 0.5), (-40.0, 0.1)])
@pytest.mark.parametrize("parties", [2, 3])
def test_batch_norm_does_not_depend_on_how_the_batch_is_cut(
    parties: int, mean: float, deviation: float, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(parties)
    x, weights = torch.randn(shape) * deviation + mean, torch.randn(shape)
    make = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
    start = make(5)
    torch.nn.init.normal_(start.weight)
    whole = _normalised(copy.deepcopy(start), x, weights)
    exchange = Exchange(parties)
    monkeypatch.setattr("ratenorm.train.global_batch_norm.total", exchange.total)
    cuts = list(zip(x.chunk(parties), weights.chunk(parties), strict=True))
    parts = exchange.run(lambda rank: _normalised(copy.deepcopy(start), *cuts[rank]))
    joined = [torch.cat([p[i] for p in parts]) for i in (0, 1)] + [sum(p[i] for p in parts) for i in (2, 3)]
    for found, expected in zip([*joined, parts[0][4], parts[0][5]], whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))
    for part in parts[1:]:
        assert torch.equal(part[4], parts[0][4])
        assert torch.equal(part[5], parts[0][5])
    # and it is what BatchNorm means: torch's own in float64
    monkeypatch.undo()
    exact, wide = copy.deepcopy(start).double(), x.double().requires_grad_()
    (exact(wide) * weights).sum().backward()
    expected = [wide.grad, exact.weight.grad, exact.bias.grad, exact.running_mean, exact.running_var]
    for name, found, truth in zip("xwbmv", [*joined[1:], parts[0][4], parts[0][5]], expected, strict=True):
        limit = 1e-6 * (1 + abs(mean) / deviation)  # x itself is rounded, relative to its mean
        assert float((found - truth).abs().max() / truth.abs().max()) < limit, name


def test_alone_nothing_is_replaced_and_together_everything_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.BatchNorm2d(2), nn.ReLU())
    with global_batch_norm(model):
        assert "forward" not in model[0].__dict__
    monkeypatch.setattr("ratenorm.train.global_batch_norm.world", lambda: World(0, 2))
    with global_batch_norm(model):
        assert "forward" in model[0].__dict__
    assert "forward" not in model[0].__dict__


@pytest.mark.parametrize("fit_images", [None, 0])
def test_an_evaluation_joins_the_sums_of_all(fit_images: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    conversion, x = tiny_conversion()
    labels = torch.arange(len(x)) % 3
    alone = evaluate(conversion.net, [(x, labels)], 5, engine="dense", fit_images=fit_images)
    joined = evaluate(conversion.net, [(x, labels)], 5, engine="dense", fit_images=fit_images)
    monkeypatch.setattr(distributed, "world", lambda: World(0, 2))
    monkeypatch.setattr(distributed, "total", lambda tensor: tensor * 2)
    joined.join_()
    assert joined.images == 2 * alone.images
    assert joined.accuracy == alone.accuracy
    assert joined.analog_accuracy == alone.analog_accuracy
    assert torch.equal(joined.spikes, 2 * alone.spikes)
    assert torch.equal(joined.synaptic_ops, 2 * alone.synaptic_ops)
    for a, b in zip(alone.layers, joined.layers, strict=True):
        assert (b.dead, b.saturated, b.negative) == (2 * a.dead, 2 * a.saturated, 2 * a.negative)
        assert torch.equal(b.rates, 2 * a.rates)
        assert (a.fit is None) == (b.fit is None)
        if a.fit is not None and b.fit is not None:
            torch.testing.assert_close(a.fit.k, b.fit.k)


def test_alone_there_is_nobody_to_ask() -> None:
    assert distributed.world() == World(0, 1)
    assert World(0, 1).writer
    assert not World(1, 2).writer
    with distributed.joined() as here:
        assert here == World(0, 1)


def test_processes_that_were_not_started_together_are_told_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="Start them with torchrun"), distributed.joined():
        pass


def test_the_ceiling_of_an_omega_is_that_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes see the halves of some values; what both have counted gives the ceiling of the whole."""
    values = torch.randn(4000, generator=torch.Generator().manual_seed(0)).exp()
    halves = values[:2000], 3 * values[2000:]
    whole, mine, theirs = OmegaCeiling(1.3), OmegaCeiling(1.3), OmegaCeiling(1.3)
    whole.update(torch.cat(halves))
    mine.update(halves[0])
    theirs.update(halves[1])
    alone = float(mine.value())
    monkeypatch.setattr(distributed, "total", lambda tensor: tensor + theirs.counts)
    monkeypatch.setattr(distributed, "largest", lambda tensor: torch.maximum(tensor, theirs.largest.value()))
    mine.join_()
    assert torch.equal(mine.value(), whole.value())
    assert float(mine.value()) != alone
