"""Laws of the neuron (Eq. 3), Lemma 1, and Theorem 2 where it is exact. Dyadic values where equality is claimed."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import dyadic
from ratenorm.core.fit import k_bound, k_curve
from ratenorm.core.neuron import integrate_and_fire, integrate_and_fire_

seeds = st.integers(0, 2**31)
thresholds = st.sampled_from([0.25, 0.5, 1.0, 2.0])


def spike_train(current: torch.Tensor, threshold: float, v0: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Spikes [T, …] and the last potential for currents [T, …]."""
    potential = torch.full_like(current[0], v0)
    spikes = []
    for now in current:
        fired, potential = integrate_and_fire(potential, now, threshold)
        spikes.append(fired)
    return torch.stack(spikes), potential


def constant_current(values: torch.Tensor, steps: int) -> torch.Tensor:
    return values.expand(steps, *values.shape)


@given(seeds, thresholds, st.sampled_from([0.0, 0.25, 0.5]))
def test_charge_is_conserved_exactly(seed: int, threshold: float, v0: float) -> None:
    current = dyadic(seed, 40, 7, low=-12, high=24)
    spikes, potential = spike_train(current, threshold, v0)
    assert torch.equal(potential, v0 + current.sum(0) - threshold * spikes.sum(0))


def test_reaching_the_threshold_fires_and_the_excess_is_kept() -> None:
    spikes, potential = integrate_and_fire(torch.tensor([0.5, 0.5, 0.5]), torch.tensor([0.5, 0.25, 2.0]), 1.0)
    assert spikes.tolist() == [1.0, 0.0, 1.0]  # U(0) = 1
    assert potential.tolist() == [0.0, 0.75, 1.5]  # soft reset


def test_the_potential_is_not_bounded_from_below() -> None:
    _, potential = spike_train(constant_current(torch.tensor([-1.0]), 5), 1.0)
    assert potential.item() == -5.0


@given(seeds, thresholds)
def test_the_in_place_step_equals_the_pure_one_bit_for_bit(seed: int, threshold: float) -> None:
    torch.manual_seed(seed)
    potential, current = torch.randn(50), torch.randn(50)
    fired = integrate_and_fire(potential, current, threshold)
    spikes = integrate_and_fire_(potential, current, threshold)
    assert torch.equal(spikes, fired.spikes)
    assert torch.equal(potential, fired.potential)


def test_the_pure_step_changes_nothing_in_place() -> None:
    potential, current = torch.tensor([0.5]), torch.tensor([0.75])
    integrate_and_fire(potential, current, 1.0)
    assert (potential.item(), current.item()) == (0.5, 0.75)


@given(seeds, thresholds, st.integers(1, 64), st.booleans())
def test_the_rate_error_is_at_most_one_over_t(seed: int, threshold: float, steps: int, half: bool) -> None:
    """For constant current in [0, theta]: 0 <= r^ - r(T) < 1/T from v(0) = 0, |r^ - r(T)| <= 1/(2T) from theta/2."""
    values = dyadic(seed, 33, low=0, high=64, unit=threshold / 64)
    spikes, _ = spike_train(constant_current(values, steps), threshold, threshold / 2 if half else 0.0)
    shortfall = values.double() / threshold - spikes.double().mean(0)
    if half:
        assert float(shortfall.abs().max()) <= 1 / (2 * steps) + 1e-12
    else:
        assert float(shortfall.min()) >= -1e-12
        assert float(shortfall.max()) < 1 / steps


@given(seeds, thresholds)
def test_lemma_1_the_rate_tends_to_the_clipped_current(seed: int, threshold: float) -> None:
    """lim r(t) = clip(I / theta, 0, 1), also for currents that are negative or exceed the threshold."""
    values = dyadic(seed, 40, low=-64, high=160, unit=threshold / 64)
    limit = (values / threshold).clamp(0, 1)
    for steps in (16, 256):
        spikes, _ = spike_train(constant_current(values, steps), threshold)
        assert float((spikes.mean(0) - limit).abs().max()) < 1 / steps + 1e-6


@given(seeds, st.integers(2, 60))
def test_theorem_2_bounds_k_under_constant_current(seed: int, steps: int) -> None:
    values = dyadic(seed, 50, low=0, high=64, unit=1 / 64).double()
    values[0] = 0.5  # not all silent
    spikes, _ = spike_train(constant_current(values, steps), 1.0)
    assert (k_curve(values, spikes) < k_bound(values, steps)).all()


def test_theorem_2_is_not_vacuous() -> None:
    """The bound is of the right order: rates just below 1/t come within a factor of three of it."""
    values = torch.full((100,), 0.124, dtype=torch.float64)
    spikes, _ = spike_train(constant_current(values, 8), 1.0)
    assert k_curve(values, spikes)[-1] > k_bound(values, 8)[-1] / 3


@given(seeds, st.integers(1, 9))
def test_without_a_current_at_rest_late_input_means_a_late_answer_that_is_otherwise_right(seed: int, lag: int) -> None:
    """What train/rest.py rests on; and with a bias b the charge that came in is wrong by lag times b, for good."""
    inputs, weights = (dyadic(seed, 30, 6, low=0, high=1, unit=1.0), dyadic(seed + 1, 6, 5))
    late = torch.cat([torch.zeros(lag, 6), inputs])
    spikes, potential = spike_train(inputs @ weights, 1.0)
    later, left = spike_train(late @ weights, 1.0)
    assert torch.equal(later, torch.cat([torch.zeros(lag, 5), spikes]))
    assert torch.equal(left, potential)
    bias = dyadic(seed + 2, 5)
    spikes, potential = spike_train(inputs @ weights + bias, 1.0)
    later, left = spike_train(late @ weights + bias, 1.0)
    assert torch.equal((left + later.sum(0)) - (potential + spikes.sum(0)), lag * bias)
