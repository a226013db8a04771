"""Rate Norm (Eq. 6) and the Rate Inference Loss: values, gradients, and the paper's formula for dOmega/dp."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import dyadic
from ratenorm.core.losses import latency_loss, omega, rate_inference_loss
from ratenorm.core.neuron import integrate_and_fire
from ratenorm.core.rate_norm import ClipActivation, ClipRate, RateNorm, clip_rate
from ratenorm.train.rates import RateSums, omegas, watched

seeds = st.integers(0, 2**31)


@given(seeds, st.floats(0.05, 20.0))
def test_clip_rate_values_and_gradients_equal_the_plain_form(seed: int, ceiling: float) -> None:
    torch.manual_seed(seed)
    values = torch.randn(200, dtype=torch.float64) * ceiling
    weights = torch.randn(200, dtype=torch.float64)
    grads = []
    for function in (ClipRate.apply, clip_rate):
        x, theta = values.clone().requires_grad_(), torch.tensor(ceiling, dtype=torch.float64, requires_grad=True)
        rate = function(x, theta)
        (rate * weights).sum().backward()
        grads.append((rate.detach(), x.grad, theta.grad))
    for ours, plain in zip(*grads):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


@given(seeds, st.floats(0.05, 20.0))
def test_clip_activation_is_the_rate_times_the_threshold_in_values_and_gradients(seed: int, ceiling: float) -> None:
    torch.manual_seed(seed)
    values = torch.randn(200, dtype=torch.float64) * ceiling
    weights = torch.randn(200, dtype=torch.float64)
    found = []
    for function in (ClipActivation.apply, lambda x, theta: theta * clip_rate(x, theta)):
        x, theta = values.clone().requires_grad_(), torch.tensor(ceiling, dtype=torch.float64, requires_grad=True)
        activation = function(x, theta)
        (activation * weights).sum().backward()
        found.append((activation.detach(), x.grad, theta.grad))
    for ours, plain in zip(*found):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


@given(seeds, st.floats(0.2, 3.0), st.sampled_from(["rate", "activation"]))
def test_the_omegas_that_training_watches_have_the_values_and_gradients_of_the_plain_form(
    seed: int, ceiling: float, output: str
) -> None:
    torch.manual_seed(seed)
    values = torch.randn(6, 3, 4, 4, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    layer = RateNorm(output=output)  # type: ignore[arg-type]
    layer.double().freeze_()
    found = []
    for plain in (False, True):
        x, p = values.clone().requires_grad_(), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        layer.running_max.fill_(ceiling)
        layer.p = p
        with watched([layer]) as sums:
            layer(x)
        value = omega(clip_rate(x, layer.threshold)) if plain else omegas(sums)[0]
        value.backward()
        found.append((value.detach(), x.grad, p.grad))
    for ours, expected in zip(*found):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)


def test_rate_sums_pass_gradcheck() -> None:
    torch.manual_seed(0)
    unit = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    z = (torch.rand(3, 2, 2, dtype=torch.float64) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(RateSums.apply, (z, unit))


@given(seeds)
def test_clip_rate_passes_gradcheck_away_from_its_corners(seed: int) -> None:
    torch.manual_seed(seed)
    theta = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    x = torch.rand(12, dtype=torch.float64) * 4 - 1
    x = torch.where(x.abs() < 0.01, 0.1, torch.where((x - 1.7).abs() < 0.01, 1.5, x)).requires_grad_()
    assert torch.autograd.gradcheck(ClipRate.apply, (x, theta))


def test_clip_rate_spares_the_gradient_of_a_fixed_threshold() -> None:
    x = torch.tensor([0.5, 2.0, -1.0], requires_grad=True)
    ClipRate.apply(x, torch.tensor(2.0)).sum().backward()
    assert x.grad is not None
    assert x.grad[0] == 0.5
    assert x.grad[2] == 0.0


@given(seeds, st.floats(0.3, 0.999), st.floats(0.5, 30.0))
def test_gradient_of_omega_is_the_papers_formula(seed: int, p: float, largest: float) -> None:
    """No neuron saturated: r = z / (p max), so Omega = p max |z|_1 / |z|_2^2 and dOmega/dp = Omega / p."""
    torch.manual_seed(seed)
    z = torch.rand(80, dtype=torch.float64) * p * largest * 0.98
    fraction = torch.tensor(p, dtype=torch.float64, requires_grad=True)
    value = omega(ClipRate.apply(z, fraction * largest))
    value.backward()
    formula = largest * z.abs().sum() / z.square().sum()
    assert fraction.grad is not None
    torch.testing.assert_close(fraction.grad, formula, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(fraction.grad, value.detach() / p, rtol=1e-9, atol=0.0)


@given(seeds, st.integers(1, 5))
def test_omega_does_not_depend_on_batch_size_or_width(seed: int, copies: int) -> None:
    torch.manual_seed(seed)
    rates = torch.rand(6, 10, dtype=torch.float64)
    torch.testing.assert_close(omega(rates), omega(rates.repeat(copies, copies)), rtol=1e-12, atol=0.0)
    assert omega(rates) >= 1.0  # r^2 <= r on [0, 1]


def test_omega_of_binary_rates_is_one_and_of_silence_infinite() -> None:
    assert omega(torch.tensor([0.0, 1.0, 1.0])).item() == 1.0
    assert omega(torch.zeros(5)).item() == float("inf")


def test_the_losses_are_those_of_the_paper() -> None:
    torch.manual_seed(0)
    teacher, student = torch.randn(4, 3), torch.randn(4, 3)
    omegas = [torch.tensor(2.0), torch.tensor(4.0)]
    cosine = (teacher * student).sum(1) / (teacher.norm(dim=1) * student.norm(dim=1))
    assert rate_inference_loss(omegas).item() == 3.0
    torch.testing.assert_close(latency_loss(teacher, student, omegas, 0.5), 1 - cosine.mean() + 0.5 * 3.0)
    torch.testing.assert_close(latency_loss(teacher, 7 * teacher, omegas, 0.0), torch.tensor(0.0), atol=1e-6, rtol=0)


@given(seeds, st.floats(0.01, 1.0))
def test_the_running_maximum_follows_its_recurrence(seed: int, momentum: float) -> None:
    torch.manual_seed(seed)
    layer, expected = RateNorm(momentum), 1.0
    for _ in range(4):
        x = torch.randn(5, 3) * 3
        expected = (1 - momentum) * expected + momentum * float(x.max())
        layer(x)
    torch.testing.assert_close(layer.running_max, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@given(seeds, st.sampled_from([4, 16, 64]), st.sampled_from([0.5, 1.0, 4.0]), st.sampled_from(["rate", "activation"]))
def test_rates_after_some_steps_are_those_of_the_neuron(seed: int, steps: int, ceiling: float, output: str) -> None:
    """A constant current, v(0) = 0: floor(T r) / T, equal to the neuron of Eq. 3."""
    current = dyadic(seed, 50, low=-8, high=40)
    layer = RateNorm(output=output).eval()  # type: ignore[arg-type]
    layer.running_max.fill_(ceiling)
    layer.steps = steps
    potential, count = torch.zeros(50), torch.zeros(50)
    for _ in range(steps):
        spikes, potential = integrate_and_fire(potential, current, ceiling)
        count += spikes
    expected = count / steps * (1.0 if output == "rate" else ceiling)
    assert torch.equal(layer(current), expected)
    layer.steps = None
    below = (layer(current) - expected) / (1.0 if output == "rate" else ceiling)
    assert bool((below >= 0.0).all())
    assert bool((below < 1.0 / steps).all())


@given(seeds, st.integers(1, 600), st.floats(0.05, 20.0), st.sampled_from([torch.float32, torch.bfloat16]))
def test_after_any_number_of_steps_the_saturated_have_fired_in_all_and_gradients_pass(
    seed: int, steps: int, ceiling: float, dtype: torch.dtype
) -> None:
    torch.manual_seed(seed)
    layer = RateNorm().eval()
    layer.running_max.fill_(ceiling)
    grads = []
    for layer.steps in (None, steps):
        x = (torch.linspace(-1.0, 3.0, 41) * ceiling).to(dtype).requires_grad_()
        rate = layer(x)
        rate.sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)
    below = clip_rate(x.detach().float(), layer.threshold) - rate.detach().float()
    assert bool((below > -0.01).all())  # bfloat16 keeps three digits
    assert bool((below < 1.0 / steps + 0.01).all())
    assert bool((rate[x.detach() >= layer.threshold.to(dtype)] == 1.0).all())
    assert bool((rate[x.detach() <= 0.0] == 0.0).all())


def test_small_rates_are_cut_off_in_bfloat16_too() -> None:
    layer = RateNorm().eval()
    layer.steps = 200
    x = torch.tensor([0.0039, 0.0049, 0.0051, 0.0149], dtype=torch.bfloat16)
    assert layer(x).tolist() == pytest.approx([0.0, 0.0, 0.005, 0.01], rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_clip_whose_ceiling_does_not_learn_has_the_gradient_of_the_plain_clip(dtype: torch.dtype) -> None:
    """The way of every training of stage 1 on a CPU; values on either side of both ends, and on them."""
    theta = torch.tensor(1.5, dtype=dtype)
    x = torch.tensor([-1.0, 0.0, 0.25, 1.4, 1.5, 1.6, 2.9, 4.0], dtype=dtype, requires_grad=True)
    plain = x.detach().clone().requires_grad_()
    weights = torch.arange(1.0, 9.0).to(dtype)
    (ClipActivation.apply(x, theta) * weights).sum().backward()
    torch.where((plain > 0) & (plain < theta), plain, plain.detach()).mul(weights).sum().backward()
    assert x.grad is not None
    assert plain.grad is not None
    assert torch.equal(x.grad, plain.grad)
    assert int((x.grad != 0).sum()) == 2
