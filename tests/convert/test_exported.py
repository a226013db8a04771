"""torch.export as a second way to follow a network: the same spikes, and said where it was taken."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ratenorm as rn
from ratenorm.convert.exported import EXPORT, FX, replayed
from ratenorm.errors import ConversionError
from strangers.architectures import shape_of, stranger

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

# One of each kind of structure; benchmarks/front_ends.py compares all.
NETWORKS = ("vgg", "resnet", "densenet", "inverted_residual", "shufflenet", "asymmetric", "stems", "mlp")


@pytest.mark.parametrize("name", NETWORKS)
def test_spikes_are_those_of_torch_fx(name: str) -> None:
    model, x = stranger(name), torch.rand(3, *shape_of(name))
    usual = rn.convert(model, "fixed:0.5", example=x[:1])
    other = rn.convert(replayed(model, x), "fixed:0.5", example=x[:1])
    assert usual.report.front == FX
    a, b = (rn.simulate(net, x, 8, engine="dense") for net in (usual, other))
    assert torch.equal(a.logits, b.logits)
    for one, two in zip(a.layers, b.layers, strict=True):
        assert torch.equal(one.counts, two.counts)


class Typed(nn.Module):
    """Asks for the type of its input, which torch.fx replaces by its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if type(x) not in (torch.Tensor, nn.Parameter) and "Fake" not in type(x).__name__:
            raise TypeError(f"a {type(x).__name__} is no tensor")
        return self.b(F.avg_pool2d(torch.relu(self.a(x)), 4).view(x.shape[0], -1))


class Plain(Typed):
    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.avg_pool2d(torch.relu(self.a(x)), 4).view(x.shape[0], -1))


@torch.jit.script  # type: ignore[untyped-decorator]
def scripted(x: Tensor) -> Tensor:
    return torch.relu(x)


class Scripted(Typed):
    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.avg_pool2d(scripted(self.a(x)), 4).view(x.shape[0], -1))


@pytest.mark.parametrize("kind", [Typed, Scripted])
def test_what_torch_fx_cannot_follow_is_exported_and_said(kind: type[Typed]) -> None:
    torch.manual_seed(0)
    model, x = kind(), torch.rand(4, 1, 8, 8)
    twin = Plain()
    twin.load_state_dict(model.state_dict())
    found = rn.convert(model, "max", example=x[:1], calibration=x)
    assert found.report.front == EXPORT
    assert "Followed by torch.export" in found.report.summary()
    assert "Followed by torch.export" in str(rn.inspect(model, x))
    usual = rn.convert(twin, "max", example=x[:1], calibration=x)
    assert "torch.export" not in str(usual.report)
    assert torch.equal(rn.simulate(found, x, 12).logits, rn.simulate(usual, x, 12).logits)


class OnValues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) if x.sum() > 0 else x


def test_what_neither_can_follow_is_refused_with_both_reasons() -> None:
    with pytest.raises(ConversionError, match=r"must not depend on values.*torch\.export cannot follow it either"):
        rn.convert(OnValues(), "max", example=torch.rand(1, 4), calibration=torch.rand(8, 4))


def test_other_errors_are_not_blamed_on_the_way() -> None:
    for bad in (3, torch.rand(2)):
        with pytest.raises(ConversionError) as refusal:
            rn.convert(nn.Linear(2, 2), example=bad)  # type: ignore[arg-type]
        assert "torch.export" not in str(refusal.value)


def test_a_replay_that_errs_is_noticed(monkeypatch: Any) -> None:
    from ratenorm.convert import exported

    monkeypatch.setitem(exported._SPECIAL, "relu", torch.abs)
    with pytest.raises(ConversionError, match="does not compute what the network does"):
        rn.convert(Scripted(), "max", example=torch.rand(1, 1, 8, 8), calibration=torch.rand(8, 1, 8, 8))
