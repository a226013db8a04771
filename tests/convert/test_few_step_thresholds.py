"""Thresholds made for few steps: against brute force, and against their formula written out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from builders import tiny_cnn, tiny_conversion
from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import (
    ChannelNorm,
    Fixed,
    GaussianThresholds,
    LocalThresholds,
    Override,
    read_out_start,
)
from ratenorm.convert.thresholds.gaussian import best_threshold
from ratenorm.errors import CalibrationError, UsageError
from ratenorm.simulate.simulate import simulate


@pytest.mark.parametrize("steps", [1, 2, 4, 16])
@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.5), (-3.0, 2.0)])
def test_the_gaussian_threshold_minimises_its_error(mean: float, deviation: float, steps: int) -> None:
    z = torch.distributions.Normal(mean, deviation).icdf((torch.arange(200_000).double() + 0.5) / 200_000)

    def error(theta: float) -> float:
        inside = ((z > 0) & (z < theta)).double().mean()
        return float(theta**2 / (12 * steps**2) * inside + (z - theta).clamp_min(0).square().mean())

    found = float(best_threshold(torch.tensor(mean).double(), torch.tensor(deviation).double(), steps))
    assert all(error(found) <= error(found * factor) + 1e-9 for factor in (0.8, 0.95, 1.05, 1.3))


def test_more_steps_allow_higher_thresholds() -> None:
    x = torch.rand(20, 1, 8, 8)
    model = tiny_cnn()
    found = [
        convert(model, GaussianThresholds(steps), example=x[:1], calibration=x).scales["2"].threshold
        for steps in (1, 4, 64)
    ]
    assert found[0].shape == (4, 1, 1)
    assert bool((found[0] <= found[1]).all() and (found[1] <= found[2]).all() and (found[0] < found[2]).any())


def test_local_thresholds_follow_their_formula() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 4)
    model, x = nn.Sequential(layer, nn.ReLU(), nn.Linear(4, 2)), torch.rand(6, 3)
    z = layer(x).detach().clamp_min(0)
    expected = torch.zeros(4)
    for _ in range(5):  # every batch is the whole set
        expected = expected + 2 * (z - expected).clamp_min(0).mean(0)
    expected = torch.where(expected > 0, expected, expected.amax())
    found = convert(model, LocalThresholds(5, 6), example=x[:1], calibration=x).scales["1"].threshold
    torch.testing.assert_close(found, expected)


def test_a_late_read_out_leaves_out_the_first_steps() -> None:
    conversion, x = tiny_conversion(v0=0.5)
    result = simulate(conversion.net, x, 6)
    single = torch.diff(result.logits * torch.arange(1, 7).view(-1, 1, 1), dim=0, prepend=torch.zeros(1, 12, 3))
    torch.testing.assert_close(result.read_out_from(3)[-1], single[2:].mean(0), rtol=1e-5, atol=1e-6)
    assert torch.equal(result.read_out_from(1), result.logits)
    with pytest.raises(UsageError, match="the first step is 7; it must lie in 1 to 6"):
        result.read_out_from(7)


def test_the_read_out_starts_when_a_spike_can_have_arrived() -> None:
    """By hand: two layers with mean activations 0.5 and 0.25, thresholds 1 and 2, start at a half of them."""
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)
    for layer, weight in ((first, 0.5), (second, 0.5)):
        nn.init.constant_(layer.weight, weight)
        nn.init.zeros_(layer.bias)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(1, 2))
    x = torch.ones(3, 1)
    method = Override(Fixed(1.0), (("3", Fixed(2.0)),))
    conversion = convert(model, method, example=x, v0=0.5)
    assert read_out_start(conversion.net, conversion.analog, x, 100) == round(0.5 / 0.5 + 1.0 / 0.25)
    assert read_out_start(conversion.net, conversion.analog, x, 6) == 2
    assert read_out_start(conversion.net, conversion.analog, x, 3) == 0
    with pytest.raises(CalibrationError, match="'1' never fires on these images"):
        read_out_start(conversion.net, conversion.analog, -x, 10)


def test_the_read_out_waits_for_a_mean_neuron_of_a_layer() -> None:
    """Thresholds 1, 2, 3 and 2 from a half of them on: 1 is missing on average, and channel 3 brings 3/8 a step."""
    layer = nn.Linear(1, 4, bias=False)
    layer.weight.data = torch.tensor([[1.0], [2.0], [3.0], [2.0]])
    x = torch.tensor([[1.0]] + 7 * [[0.0]])
    made = convert(nn.Sequential(layer, nn.ReLU(), nn.Linear(4, 2)), ChannelNorm(), example=x, calibration=x, v0=0.5)
    assert read_out_start(made.net, made.analog, x, 100) == round(1.0 / (3 / 8))


@pytest.mark.parametrize("wrong", [lambda: LocalThresholds(0), lambda: GaussianThresholds(0)])
def test_settings_out_of_range_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="must"):
        wrong()  # type: ignore[operator]
