"""Statistics in one pass: the exact percentile for any split and order, maxima, and what they refuse."""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from builders import tiny_cnn, tiny_mlp
from ratenorm.convert.calibration import Calibration
from ratenorm.convert.convert import convert
from ratenorm.convert.lower import lower
from ratenorm.convert.observe import ChannelMaximum, ExactPercentile, Maximum, observe
from ratenorm.convert.thresholds import ChannelNorm, EqualOmega, Latency, MaxNorm, Method, Percentile
from ratenorm.errors import CalibrationError

whole_numbers = st.lists(st.integers(0, 12), min_size=1, max_size=200)  # many ties
numbers = st.lists(st.floats(0, 1e3, width=32), min_size=1, max_size=200)


@settings(max_examples=150)
@given(
    st.one_of(whole_numbers, numbers),
    st.one_of(st.sampled_from([50.0, 90.0, 99.0, 99.9, 100.0, 0.1]), st.floats(0.01, 100.0)),
    st.lists(st.integers(0, 200), max_size=6),
    st.randoms(),
)
def test_the_percentile_is_numpys_for_any_split_and_order(
    values: list, percent: float, cuts: list, dice: object
) -> None:
    expected = numpy.percentile(numpy.array(values, dtype=numpy.float32).astype(numpy.float64), percent)
    dice.shuffle(values)  # type: ignore[attr-defined]
    statistic = ExactPercentile(percent, len(values))
    ends = sorted(min(c, len(values)) for c in cuts)
    for start, stop in zip([0, *ends], [*ends, len(values)], strict=True):
        statistic.update(torch.tensor(values[start:stop], dtype=torch.float32))
    assert statistic.value().shape == (1,)
    assert float(statistic.value()) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_only_the_tail_is_kept() -> None:
    statistic = ExactPercentile(99.0, 100_000)
    values = torch.rand(100, 1000)
    for part in values:
        statistic.update(part)
        assert statistic.tail.numel() + statistic.waiting <= 2 * statistic.keep + 1000
    assert statistic.keep == 1001
    assert float(statistic.value()) == pytest.approx(float(numpy.percentile(values.double().numpy(), 99)), rel=1e-6)


def test_what_lies_below_a_full_tail_is_not_even_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the tail is sorted out when as many values wait as it is long, not at every batch."""
    statistic, sorted_out, plain = ExactPercentile(99.0, 100_000), [], ExactPercentile._shrink
    monkeypatch.setattr(ExactPercentile, "_shrink", lambda self: sorted_out.append(self.waiting) or plain(self))
    for part in torch.rand(200, 100).cumsum(0):  # each larger than the last, so that all of them matter
        statistic.update(part)
    assert all(waiting + 100 >= statistic.keep for waiting in sorted_out)
    assert sorted_out
    waiting = statistic.waiting
    statistic.update(torch.zeros(1000))
    assert statistic.waiting == waiting


def test_a_wrong_number_of_values_is_noticed() -> None:
    statistic = ExactPercentile(50.0, 10)
    statistic.update(torch.rand(9))
    with pytest.raises(AssertionError, match="10 values was given 9"):
        statistic.value()


def test_maxima() -> None:
    layer, channel = Maximum(), ChannelMaximum()
    for u in (torch.tensor([[[1.0, 2.0], [0.0, 0.0]]]), torch.tensor([[[0.0, 1.0], [3.0, 0.0]]])):
        layer.update(u)
        channel.update(u)
    assert layer.value().tolist() == [3.0]
    assert channel.value().tolist() == [[2.0], [3.0]]


def test_activations_that_overflow_are_named() -> None:
    model = tiny_mlp()
    with torch.no_grad():
        model[2].weight.fill_(1e30)
        model[0].weight.fill_(1e30)
    graph, _ = lower(model, torch.rand(1, 6))
    with pytest.raises(CalibrationError, match="activations at '3' are NaN or infinite"):
        observe(graph, Calibration(torch.rand(2, 6)), lambda _: Maximum())


def test_values_are_seen_in_units_of_the_pre_activation() -> None:
    """A Rate Norm layer hands on rates; its statistic is that of clip(x, 0, theta)."""
    from ratenorm.core.rate_norm import RateNorm

    for output in ("rate", "activation"):
        layer = RateNorm(output=output)
        layer.running_max.fill_(2.0)
        graph, _ = lower(nn.Sequential(layer).eval(), torch.rand(1, 3))
        data = Calibration(torch.tensor([[0.5, 1.5, -1.0]]))
        assert observe(graph, Calibration(data), lambda _: Maximum())["0"].item() == pytest.approx(1.5)


@pytest.mark.parametrize(
    "method",
    [MaxNorm(), ChannelNorm(), Percentile(99.0), EqualOmega(1.5), Latency(steps=4, batch_size=4)],
    ids=lambda m: m.label,
)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_thresholds_have_the_precision_of_the_network(method: Method, kind: torch.dtype, default: torch.dtype) -> None:
    x = torch.rand(12, 1, 8, 8, dtype=kind)
    model = tiny_cnn().to(kind)
    torch.set_default_dtype(default)
    try:
        made = convert(model, method, example=x[:1], calibration=x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {scale.threshold.dtype for scale in made.scales.values()} == {kind}
