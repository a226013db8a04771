"""What several processes add up, without starting any: sums are doubled, statistics are those of one batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from builders import tiny_conversion
from ratenorm import distributed
from ratenorm.distributed import World
from ratenorm.engines.evaluate import evaluate
from ratenorm.errors import UsageError
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
