"""Constant and Poisson coding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import tiny_conversion
from ratenorm.core.coding import Constant, Poisson, counter_uniform
from ratenorm.simulate.simulate import simulate

seeds = st.integers(0, 2**40)


def test_constant_coding_is_the_image_at_every_step() -> None:
    x = torch.rand(2, 3)
    assert all(Constant().encode(x, step, 7) is x for step in (0, 5))


@settings(max_examples=6)
@given(seeds, st.floats(0.5, 4.0))
def test_the_mean_of_poisson_spikes_tends_to_the_value(seed: int, amplitude: float) -> None:
    x = torch.linspace(-amplitude, amplitude, 41).unsqueeze(0)
    coding, steps = Poisson(amplitude, seed), 400
    train = torch.stack([coding.encode(x, t) for t in range(steps)])
    assert set((train / amplitude).unique().tolist()) <= {-1.0, 0.0, 1.0}
    # four and a half standard deviations of a Bernoulli mean; 41 values
    spread = amplitude * (x.abs() / amplitude * (1 - x.abs() / amplitude) / steps).sqrt()
    assert ((train.mean(0) - x).abs() <= 4.5 * spread + 1e-4).all()


@given(seeds, st.integers(0, 1000), st.integers(1, 5))
def test_an_image_gets_the_same_spikes_in_any_batch(seed: int, step: int, cut: int) -> None:
    x = torch.rand(6, 2, 5)
    coding = Poisson(1.0, seed)
    whole = coding.encode(x, step, first_image=10)
    parts = torch.cat([coding.encode(x[:cut], step, 10), coding.encode(x[cut:], step, 10 + cut)])
    assert torch.equal(whole, parts)


def test_seed_step_image_and_pixel_all_matter() -> None:
    x = torch.full((2, 50), 0.5)
    draws = [
        Poisson(1.0, 0).encode(x, 0),
        Poisson(1.0, 1).encode(x, 0),
        Poisson(1.0, 0).encode(x, 1),
        Poisson(1.0, 0).encode(x, 0, first_image=2),
    ]
    assert not any(torch.equal(a, b) for i, a in enumerate(draws) for b in draws[:i])
    assert not torch.equal(draws[0][0], draws[0][1])


@given(seeds)
def test_the_uniform_numbers_are_uniform(seed: int) -> None:
    u = counter_uniform(seed, 3, 0, torch.empty(20, 1000, dtype=torch.float64)).flatten()
    assert float(u.min()) >= 0.0
    assert float(u.max()) < 1.0
    assert abs(float(u.mean()) - 0.5) < 5 * 0.2887 / len(u) ** 0.5
    assert abs(float((u < 0.1).double().mean()) - 0.1) < 5 * 0.3 / len(u) ** 0.5
    pairs = torch.corrcoef(torch.stack([u[:-1], u[1:]]))[0, 1]
    assert abs(float(pairs)) < 5 / len(u) ** 0.5


@pytest.mark.parametrize("chunk", [1, 3, 7, 20])
def test_poisson_rates_are_the_same_in_any_chunk(chunk: int) -> None:
    conversion, x = tiny_conversion()
    one = simulate(conversion.net, x, 20, engine="dense", coding=Poisson(1.0, 5), chunk=1)
    other = simulate(conversion.net, x, 20, engine="dense", coding=Poisson(1.0, 5), chunk=chunk)
    for a, b in zip(one.layers, other.layers):
        assert torch.equal(a.counts, b.counts)


@pytest.mark.parametrize("amplitude", [0.0, -1.0, float("nan")])
def test_an_amplitude_that_is_not_positive_is_refused(amplitude: float) -> None:
    with pytest.raises(ValueError, match="amplitude"):
        Poisson(amplitude)
