"""Products in bfloat16: only where they are asked for and worth it, and never in weights, sums and losses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ratenorm.core.rate_norm import RateNorm
from ratenorm.data import ImageSet
from ratenorm.train import precision
from ratenorm.train.config import Stage1
from ratenorm.train.global_batch_norm import _forward
from ratenorm.train.rates import omegas, watched
from ratenorm.train.stage1 import train_accuracy

CPU = torch.device("cpu")


@pytest.mark.parametrize(("asked", "there"), [(True, True), (True, False), (False, True)])
def test_products_are_rounded_where_that_is_asked_for_and_worth_it(
    asked: bool, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: there)
    with precision.products(asked, CPU):
        kind = nn.Linear(2, 2)(torch.ones(1, 2)).dtype
    assert kind == (torch.bfloat16 if asked and there else torch.float32)


@pytest.mark.parametrize("features", [{}, {"avx512_bf16": False}, {"avx512_bf16": True}, {"bf16": True}])
def test_a_processor_is_asked_for_its_features(features: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, **features})
    assert precision.has_bfloat16(CPU) == any(features.values())
    assert not precision.has_bfloat16(torch.device("meta"))


def train(bfloat16: bool, lam: float | None = None) -> tuple[nn.Module, list[float]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), RateNorm(), nn.Flatten(), nn.Linear(8 * 36, 2))
    labels = torch.arange(128) % 2
    images = torch.randint(0, 128, (128, 1, 8, 8), dtype=torch.uint8) + 100 * labels.byte()[:, None, None, None]
    data = ImageSet("toy", images, labels, ("a", "b"))
    config = Stage1(epochs=4, batch_size=32, holdout=0, lr=0.05, bfloat16=bfloat16, lam=lam)
    trained = train_accuracy(model, data, config, show=False)
    return model, [entry["loss"] for entry in trained.history]


@pytest.mark.parametrize("lam", [None, 0.1])
def test_a_training_with_rounded_products_learns_what_an_exact_one_does(
    lam: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: True)
    exact, rounded = train(False, lam), train(True, lam)
    assert rounded[1] != exact[1]
    assert rounded[1] == pytest.approx(exact[1], rel=0.1, abs=0.05)
    assert all(t.dtype == torch.float32 for t in rounded[0].state_dict().values() if t.is_floating_point())


def test_without_the_hardware_nothing_is_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: False)
    assert train(True)[1] == train(False)[1]


def test_omega_of_bfloat16_rates_is_summed_exactly() -> None:
    """A sum of some thousand rates in bfloat16 would stop growing at 256 times one of them."""
    layer = RateNorm(output="activation").eval()
    x = torch.rand(2, 8, 40, 40).bfloat16().requires_grad_()
    wide = x.detach().float().requires_grad_()
    found = []
    for given in (x, wide):
        with watched([layer]) as sums:
            layer(given)
        found.append(omegas(sums)[0])
        found[-1].backward()
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=0.0)
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16
    torch.testing.assert_close(x.grad.float(), wide.grad, rtol=0.05, atol=1e-6)


def test_batch_norm_over_all_processes_takes_its_sums_of_bfloat16_in_float32() -> None:
    ours, exact = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    x = (torch.randn(16, 3, 32, 32) + 8.0).bfloat16()
    y = _forward(ours, x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), exact(x.float()), rtol=0.01, atol=0.01)
    torch.testing.assert_close(ours.running_mean, exact.running_mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.running_var, exact.running_var, rtol=1e-4, atol=1e-5)
