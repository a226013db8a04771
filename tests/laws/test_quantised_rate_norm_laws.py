"""Quantised Rate Norm: L steps from theta/2, the paper's layer in the limit, a straight-through gradient."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from builders import image_set, tiny_cnn
from ratenorm.convert.convert import convert
from ratenorm.core.neuron import integrate_and_fire
from ratenorm.core.rate_norm import ClipActivation, Quantise, RateNorm, rate_norm_layers, set_p_
from ratenorm.errors import UsageError
from ratenorm.io.networks import NetworkSpec, load_network, save_network
from ratenorm.train.config import Stage1, Stage2
from ratenorm.train.stage1 import train_accuracy
from ratenorm.train.stage2 import train_latency

seeds = st.integers(0, 2**31)


def plain(x: Tensor, theta: Tensor, levels: int) -> Tensor:
    """The formula with the straight-through estimator written out."""
    r = x / theta
    inside = ((r * levels + 0.5 > 0) & (r * levels + 0.5 < levels)).to(x.dtype)
    q = (torch.floor(r.detach() * levels + 0.5) / levels).clamp(0, 1)
    return theta * (q + inside * (r - r.detach()))


@given(seeds, st.floats(0.05, 20.0), st.integers(1, 16))
def test_values_and_gradients_are_those_of_the_formula(seed: int, ceiling: float, levels: int) -> None:
    torch.manual_seed(seed)
    values = torch.randn(5, 3, 4, dtype=torch.float64) * ceiling
    weights = torch.randn(5, 3, 4, dtype=torch.float64)
    found = []
    for function in (Quantise.apply, plain):
        x = values.clone().requires_grad_()
        theta = torch.full((3, 1), ceiling, dtype=torch.float64, requires_grad=True)
        z = function(x, theta, levels)
        (z * weights).sum().backward()
        found.append((z.detach(), x.grad, theta.grad))
    for ours, expected in zip(*found):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


@given(seeds, st.integers(1, 12))
def test_it_is_what_as_many_steps_from_half_a_threshold_give(seed: int, levels: int) -> None:
    torch.manual_seed(seed)
    theta = torch.tensor(2.0)
    x = torch.randint(-64, 192, (50,)).float() / 64 + 1 / 256  # dyadic, and never on the edge between two levels
    potential, count = torch.full((50,), 1.0), torch.zeros(50)
    for _ in range(levels):
        spikes, potential = integrate_and_fire(potential, x, theta)
        count += spikes
    torch.testing.assert_close(Quantise.apply(x, theta, levels), theta * count / levels)


@given(seeds)
def test_the_papers_layer_is_the_limit(seed: int) -> None:
    torch.manual_seed(seed)
    x, theta = torch.randn(100, dtype=torch.float64) * 2, torch.tensor(1.5, dtype=torch.float64)
    limit = ClipActivation.apply(x, theta)
    for levels in (4, 32, 256):
        assert float((Quantise.apply(x, theta, levels) - limit).abs().max()) <= 1.5 / (2 * levels) + 1e-12


def test_thresholds_are_trained_with_the_weights_and_survive_a_file(tmp_path: Path) -> None:
    spec = NetworkSpec("cnn7", channels=1, size=(28, 28), mean=(0.0,), std=(1.0,), levels=4)
    torch.manual_seed(0)
    model = spec.build()
    images = image_set(40, 10, (1, 28, 28))
    settings = Stage1(epochs=1, batch_size=10, lr=0.01, holdout=0)
    train_accuracy(model, images, settings, show=False)
    learned = {name: float(layer.p.detach()) for name, layer in rate_norm_layers(model)}
    assert all(p != 1.0 for p in learned.values())
    assert all(float(layer.running_max) == 1.0 for _, layer in rate_norm_layers(model))
    save_network(tmp_path / "net.safetensors", model, spec)
    again, found = load_network(tmp_path / "net.safetensors")
    assert found == spec
    x = torch.rand(3, 1, 28, 28)
    with torch.no_grad():
        assert torch.equal(again(x), model.eval()(x))
    conversion = convert(again, example=x[:1])
    assert conversion.v0 == 0.5
    assert [float(s.threshold) for s in conversion.scales.values()] == pytest.approx(list(learned.values()))
    set_p_(again, 0.5)
    assert {name: float(layer.p.detach()) for name, layer in rate_norm_layers(again)} == learned
    with pytest.raises(UsageError, match=r"is quantised, and its p is trained with the weights"):
        train_latency(again, images, Stage2(), show=False)


def test_a_threshold_for_each_channel() -> None:
    layer = RateNorm(levels=2, channels=4, output="activation")
    with torch.no_grad():
        layer.p.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert layer(torch.full((1, 4, 2, 2), 9.0)).detach().amax((0, 2, 3)).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert layer(torch.full((1, 4), 9.0)).tolist() == [[1.0, 2.0, 3.0, 4.0]]
    model = tiny_cnn(lambda: RateNorm(levels=2, channels=4))
    conversion = convert(model, example=torch.rand(1, 1, 8, 8))
    assert conversion.scales["2"].threshold.shape == (4, 1, 1)


@pytest.mark.parametrize("wrong", [{"levels": 0}, {"levels": 1000}, {"levels": 2.5}, {"channels": 3}])
def test_levels_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"RateNorm: (levels|channels) is"):
        RateNorm(**wrong)  # type: ignore[arg-type]


def test_the_layer_without_levels_has_no_parameter() -> None:
    assert not list(RateNorm().parameters())
    assert not list(nn.Sequential(RateNorm()).parameters())


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_at_the_ends_of_the_interval_the_gradient_is_zero(levels: int) -> None:
    """1 for -theta/2L < x < theta - theta/2L, else 0: the ends are outside. Dyadic numbers, so that x lies on them."""
    theta, half = 2.0, 1.0 / levels
    x = torch.tensor([-half, -half + 1 / 64, theta - half - 1 / 64, theta - half], requires_grad=True)
    Quantise.apply(x, torch.tensor(theta), levels).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 0.0]
