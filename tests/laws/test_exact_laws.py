"""Sums that no order of additions, batch or chunk can change, and what rounding to get there may cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from builders import chain, fire
from ratenorm.convert.convert import convert
from ratenorm.convert.grid import gridded, on_grid
from ratenorm.convert.thresholds import ChannelNorm, MaxNorm
from ratenorm.graph.exact import HALF, in_double, units_of
from ratenorm.graph.net import run
from ratenorm.graph.ops import AdaptiveAvgPool, Affine, AvgPool, Conv, Linear, Op
from ratenorm.simulate.simulate import simulate

OPS = {
    "conv": lambda g: Conv(torch.randn(6, 4, 3, 3, generator=g), torch.randn(6, generator=g), padding=(1, 1, 1, 1)),
    "strided 1x1": lambda g: Conv(torch.randn(6, 4, 1, 1, generator=g), None, (2, 1)),
    "padded 1x1": lambda g: Conv(torch.randn(6, 4, 1, 1, generator=g), None, (1, 1), (1, 0, 2, 1)),
    "grouped": lambda g: Conv(torch.randn(6, 2, 3, 3, generator=g), None, groups=2),
    "depthwise": lambda g: Conv(
        torch.randn(4, 1, 3, 2, generator=g), torch.randn(4, generator=g), (2, 1), (1, 2, 0, 1), (1, 2), 4, "reflect"
    ),
    "linear": lambda g: Linear(torch.randn(5, 8, generator=g), torch.randn(5, generator=g)),
    "pool": lambda g: AvgPool((3, 3), (2, 2), (1, 1), True, False),
    "adaptive": lambda g: AdaptiveAvgPool((3, 5)),
}


POOLS: dict[str, Callable[[], nn.Module]] = {
    "none": nn.Identity,
    "average 2": lambda: nn.AvgPool2d(2, 1, 1),
    "average 3": lambda: nn.AvgPool2d(3, 2, 1),
    "average 3 of what is there": lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    "largest 2": lambda: nn.MaxPool2d(2, 2, 1),
    "largest 3": lambda: nn.MaxPool2d(3, 1, 1),
    "adaptive 3": lambda: nn.AdaptiveAvgPool2d(3),
    "adaptive 2": lambda: nn.AdaptiveAvgPool2d((2, 1)),
}


def wide(op: Op, x: torch.Tensor) -> tuple[torch.Tensor, Op]:
    """A value summed in double precision, and the operation that a network of it alone would use."""
    scale = Affine(torch.rand(x.shape[1], 1, 1) * 0.3 + 0.1)
    net = chain(tuple(x.shape[1:]), ("first", fire()), ("scale", scale), ("op", op), ("second", fire()))
    return in_double(net.sums.in_double["op"], x), net.sums.in_double["op"]


@given(st.sampled_from(sorted(OPS)), st.integers(0, 10**6), st.floats(-60, 60))
@settings(max_examples=60)
def test_a_sum_in_double_is_right_to_the_last_digits_of_float32(kind: str, seed: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    op, x = OPS[kind](generator), 2.0**size * torch.randn(3, 4, 7, 8, generator=generator)
    found, _ = wide(op, x)
    exact = op.__class__(**{**vars(op), **{k: t.double() for k, t in op.tensors().items()}})(x.double())
    sizes = op.weight.abs().flatten(1).sum(1).max() if isinstance(op, Conv | Linear) else 1.0
    bound = 2.0**-24 * float(sizes) * float(x.abs().max()) + 2.0**-24 * float(exact.abs().max())
    assert found.dtype == torch.float32
    assert float((found - exact).abs().max()) <= bound


@given(st.sampled_from(sorted(OPS)), st.integers(0, 10**6))
@settings(max_examples=60)
def test_a_sum_in_double_is_the_same_alone_and_in_a_batch(kind: str, seed: int) -> None:
    """Images of very different sizes: each has a step of its own."""
    generator = torch.Generator().manual_seed(seed)
    op = OPS[kind](generator)
    x = torch.randn(4, 4, 7, 8, generator=generator) * torch.tensor([1.0, 1e-6, 1e4, 0.0]).view(4, 1, 1, 1)
    found, rounded = wide(op, x)
    alone = torch.cat([in_double(rounded, one) for one in x.split(1)])
    assert torch.equal(found, alone)
    last = x.to(memory_format=torch.channels_last)
    assert torch.equal(found, in_double(rounded, last))


@pytest.mark.parametrize("kind", OPS)
def test_a_sum_in_double_is_the_same_in_pieces(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many entries are taken in pieces that fit the cache; how many at a time changes nothing."""
    generator = torch.Generator().manual_seed(0)
    op, x = OPS[kind](generator), torch.randn(23, 4, 7, 8, generator=generator)
    whole, rounded = wide(op, x)
    for entries in (1, 2, 5, 11, 23):
        monkeypatch.setattr("ratenorm.graph.exact.PIECE", entries * x[0].numel())
        assert torch.equal(in_double(rounded, x), whole)


@given(st.integers(0, 10**6), st.integers(1, 500), st.floats(-30, 30))
@settings(max_examples=40)
def test_any_order_of_a_sum_in_double_gives_one_number(seed: int, terms: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    linear = Linear(2.0**size * torch.randn(1, terms, generator=generator), None)
    scale = Affine(torch.rand(terms, generator=generator))
    net = chain((terms,), ("first", fire()), ("scale", scale), ("linear", linear), ("second", fire()))
    op = net.sums.in_double["linear"]
    assert isinstance(op, Linear)
    x = torch.randn(1, terms, generator=generator)
    found = in_double(op, x)
    for _ in range(3):
        order = torch.randperm(terms, generator=generator)
        shuffled = Linear(op.weight[:, order], None)
        assert torch.equal(in_double(shuffled, x[:, order]), found)
    step = 2.0 ** (torch.frexp(linear.weight.double().abs().sum()).exponent - HALF)
    assert float((op.weight - linear.weight).abs().max()) <= step / 2


def test_powers_of_two_are_exact() -> None:
    """What rounding multiplies and divides by, over the whole range of float32."""
    exponents = torch.arange(-200, 200)
    assert torch.exp2(exponents.double()).tolist() == [2.0**e for e in exponents.tolist()]


@given(st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=6), st.integers(-40, 40))
def test_the_unit_of_a_row_divides_all_its_numbers(numbers: list[int], exponent: int) -> None:
    row = torch.tensor(numbers).float() * 2.0**exponent
    unit = float(units_of(row.unsqueeze(0)))
    if not any(numbers):
        assert unit == float("inf")
        return
    whole = [n * 2.0**exponent / unit for n in numbers]
    assert all(w == int(w) for w in whole)
    assert any(int(w) % 2 for w in whole)


@given(
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.sampled_from((4, 24, 96)),
    st.sampled_from((2, 8, 16, 32)),
    st.sampled_from((5, 120)),
    st.booleans(),
    st.lists(st.sampled_from(sorted(POOLS)), min_size=3, max_size=3),
)
@settings(max_examples=40)
def test_the_limit_is_the_clipped_network_within_a_thousandth(
    seed: int, depth: int, width: int, side: int, classes: int, channels: bool, pools: list[str]
) -> None:
    """Random depths, widths and pools. A global pool takes bits of the 24; it must not take them from accuracy."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for k in range(depth):
        layers += [nn.Conv2d(width if k else 3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers.append(POOLS[pools[k]]())
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)).eval()
    x = torch.rand(4, 3, side, side)
    conversion = convert(model, ChannelNorm() if channels else MaxNorm(), example=x[:1], calibration=x)
    analog = run(conversion.analog, x).double()  # thresholds are maxima of these images: nothing is clipped
    assert float((run(conversion.net, x) - analog).norm() / analog.norm()) <= 1e-3


@pytest.mark.parametrize(("channels", "side", "classes"), [(64, 64, 10), (64, 64, 512), (16, 128, 256)])
def test_a_pool_over_many_pixels_leaves_the_classifier_its_weights(channels: int, side: int, classes: int) -> None:
    """As many distinct weights as there were, or nearly."""
    torch.manual_seed(0)
    first = nn.Conv2d(3, channels, 3, padding=1)
    model = nn.Sequential(first, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    x = torch.rand(2, 3, side, side)
    conversion = convert(model.eval(), MaxNorm(), example=x[:1], calibration=x)
    weight = conversion.net[conversion.net.output].op.weight
    assert len(weight.unique()) > 0.95 * weight.numel()
    analog = run(conversion.analog, x).double()
    assert float((run(conversion.net, x) - analog).norm() / analog.norm()) <= 1e-5
    dense, event = (simulate(conversion.net, x, 16, engine=engine) for engine in ("dense", "event"))
    assert torch.equal(dense.logits, event.logits)
    assert conversion.in_double
    assert conversion.exact


@given(st.integers(0, 10**6), st.integers(1, 60))
@settings(max_examples=20)
def test_the_size_of_a_chunk_changes_no_mean_output(seed: int, chunk: int) -> None:
    """Outputs are added up step by step in double precision."""
    torch.manual_seed(seed)
    x = torch.rand(2, 6)
    model = nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 3))
    net = convert(model.eval(), MaxNorm(), example=x[:1], calibration=x).net
    whole = simulate(net, x, 60, engine="dense")
    for options in ({"engine": "dense", "chunk": chunk}, {"engine": "event"}):
        assert torch.equal(simulate(net, x, 60, **options).logits, whole.logits)


def test_a_network_of_double_precision_is_said_not_to_be_exact() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 6).double()
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double().eval()
    conversion = convert(model, MaxNorm(), example=x[:1], calibration=x)
    assert not conversion.exact
    assert set(conversion.inexact) == {"0", "2"}
    assert "the network holds float64" in conversion.inexact["0"]


@pytest.mark.parametrize("together", [16, 8, 4, 0])
def test_a_grid_taken_once_is_taken_again(together: int) -> None:
    generator = torch.Generator().manual_seed(0)
    conv = Conv(torch.randn(20, 20, 3, 3, generator=generator), None, padding=(1, 1, 1, 1))
    net = gridded(chain((20, 4, 4), ("first", fire()), ("conv", conv), ("second", fire())), together)
    assert on_grid(net).same_as(net)
