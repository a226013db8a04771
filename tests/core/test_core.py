"""Rate Norm as a module, the K curve, energy."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ratenorm.core.energy import ACCUMULATE_PJ, MULTIPLY_ACCUMULATE_PJ, Cost, power, spike_energy, steps_to
from ratenorm.core.fit import k_bound, k_curve, k_value
from ratenorm.core.losses import accuracy_loss, teaching_loss
from ratenorm.core.rate_norm import SMALLEST_MAX, RateNorm, clip_rate, rate_norm_layers, set_p_


def test_the_threshold_is_p_times_the_running_maximum() -> None:
    layer = RateNorm()
    layer.running_max.fill_(4.0)
    layer.p.fill_(0.5)
    x = torch.tensor([-1.0, 0.5, 2.0, 3.0])
    layer.eval()
    assert layer.threshold.item() == 2.0
    assert layer(x).tolist() == [0.0, 0.25, 1.0, 1.0]
    layer.output = "activation"
    assert layer(x).tolist() == [0.0, 0.5, 2.0, 2.0]
    assert "threshold=2, p=0.5, output='activation'" in repr(layer)


def test_the_running_maximum_moves_in_training_only_and_never_when_frozen() -> None:
    layer, x = RateNorm(momentum=0.1), torch.tensor([11.0, -3.0])
    layer.eval()(x)
    assert layer.running_max.item() == 1.0
    layer.train()
    layer.freeze_()
    layer(x)
    assert layer.running_max.item() == 1.0
    layer.freeze_(False)
    layer(x)
    assert layer.running_max.item() == pytest.approx(2.0)


def test_no_gradient_flows_through_the_maximum() -> None:
    layer, x = RateNorm(momentum=1.0), torch.tensor([0.5, 2.0], requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad[0].item() == 0.5  # 1 / theta, and nothing by way of the maximum


def test_a_layer_that_is_never_positive_stays_finite() -> None:
    layer = RateNorm(momentum=1.0)
    out = layer(torch.tensor([-1.0, -2.0]))
    assert out.tolist() == [0.0, 0.0]
    assert layer.threshold.item() == pytest.approx(SMALLEST_MAX)


@pytest.mark.parametrize("wrong", [{"momentum": 0.0}, {"momentum": 1.5}, {"output": "spikes"}], ids=str)
def test_settings_are_checked(wrong: dict) -> None:
    with pytest.raises(ValueError, match=f"RateNorm: {next(iter(wrong))}"):
        RateNorm(**wrong)


def test_layers_are_found_and_given_one_p() -> None:
    model = nn.Sequential(RateNorm(), nn.Sequential(nn.ReLU(), RateNorm()))
    assert [name for name, _ in rate_norm_layers(model)] == ["0", "1.1"]
    p = torch.tensor(0.25, requires_grad=True)
    set_p_(model, p)
    model.eval()(torch.tensor([0.1])).sum().backward()
    assert p.grad is not None
    set_p_(model, 0.5)
    assert {float(layer.p) for _, layer in rate_norm_layers(model)} == {0.5}


def test_state_survives_a_round_trip_and_another_precision() -> None:
    layer = RateNorm()
    layer.running_max.fill_(3.0)
    other = RateNorm()
    other.load_state_dict(layer.state_dict())
    assert other.threshold.item() == 3.0
    assert layer.eval()(torch.tensor([1.5], dtype=torch.float64)).dtype == torch.float64
    assert clip_rate(torch.tensor([6.0]), torch.tensor(3.0)).item() == 1.0


def test_the_k_value_of_eq_7() -> None:
    analog, rate = torch.tensor([0.5, 0.25]), torch.tensor([0.5, 0.0])
    assert k_value(analog, rate).item() == pytest.approx(0.0625 / 0.3125)
    assert k_value(torch.zeros(2), torch.zeros(2)).item() == 0.0
    assert k_value(torch.zeros(2), rate).item() == float("inf")


def test_the_k_curve_and_its_bound() -> None:
    analog = torch.tensor([[0.5, 1.0]])
    spikes = torch.tensor([[[0.0, 1.0]], [[1.0, 1.0]], [[0.0, 1.0]], [[1.0, 1.0]]])
    curve = k_curve(analog, spikes)
    assert curve.tolist() == pytest.approx([0.25 / 1.25, 0.0, (1 / 6) ** 2 / 1.25, 0.0], abs=1e-7)
    assert k_bound(analog, 4).tolist() == pytest.approx([2 * 1.5 / 1.25 / t for t in (1, 2, 3, 4)])


def test_the_papers_power_model() -> None:
    assert power(3.0, alpha=2.0) == pytest.approx(6000.0)  # spikes a millisecond
    assert spike_energy([1.0, 2.0, 4.0], 2, alpha=0.5) == pytest.approx(1.5)
    assert spike_energy([1.0, 2.0, 4.0], 3) == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("curve", "target", "steps"),
    [
        ([0.1, 0.5, 0.9], 0.5, 2),
        ([0.9, 0.1, 0.9], 0.5, 3),  # touching it by luck does not count
        ([0.9, 0.9], 0.5, 1),
        ([0.9, 0.1], 0.5, None),
        ([], 0.5, None),
    ],
)
def test_arriving_means_staying(curve: list[float], target: float, steps: int | None) -> None:
    assert steps_to(curve, target) == steps


def test_the_cost_in_picojoules() -> None:
    assert Cost(10.0, 4.0, 6.0).picojoules == pytest.approx(10 * MULTIPLY_ACCUMULATE_PJ + 10 * ACCUMULATE_PJ)
    assert Cost(1.0).picojoules == MULTIPLY_ACCUMULATE_PJ


def test_the_accuracy_loss_is_cross_entropy() -> None:
    logits, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])
    expected = -torch.log_softmax(logits, 1)[[0, 1], labels].mean()
    torch.testing.assert_close(accuracy_loss(logits, labels), expected)
    assert accuracy_loss(logits, labels, 0.2) != accuracy_loss(logits, labels)


def test_a_teacher_is_met_where_the_answers_are_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    student = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    assert float(teaching_loss(teacher, teacher + 3.0)) == pytest.approx(0.0, abs=1e-12)  # a shift tells nothing
    known, learned = (teacher / 2).softmax(1), (student / 2).softmax(1)
    plain = 4 * (known * (known.log() - learned.log())).sum(1).mean()
    assert float(teaching_loss(teacher, student)) == pytest.approx(float(plain), rel=1e-12)


def test_the_gradient_of_a_teacher_keeps_its_size_at_any_temperature() -> None:
    """With soft answers it tends to the difference of the outputs themselves, over their number."""
    teacher = torch.tensor([[2.0, -1.0, -1.0]], dtype=torch.float64)
    student = torch.tensor([[1.0, 1.0, -2.0]], dtype=torch.float64, requires_grad=True)  # both with mean 0
    teaching_loss(teacher, student, 1e4).backward()
    torch.testing.assert_close(student.grad, (student.detach() - teacher) / 3, rtol=1e-3, atol=1e-4)
