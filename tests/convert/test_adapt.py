"""`adapt` replaces what is near a clip, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ratenorm as rn
from ratenorm.convert.adapt import NEAR
from ratenorm.errors import UsageError

X = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def net(*activations: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for activation in activations:
        layers += [nn.Conv2d(3, 3, 3, padding=1), activation]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(192, 3)).eval()


@pytest.mark.parametrize("kind", NEAR, ids=lambda kind: kind.__name__)
def test_near_activations_become_relu(kind: type[nn.Module]) -> None:
    model = net(kind())
    before = model(X)
    adapted = rn.adapt(model, X[:1])
    assert type(adapted.model[1]) is nn.ReLU
    assert [change.name for change in adapted.changes] == ["1"]
    assert adapted.obstacles == ()
    assert torch.equal(model(X), before)
    assert type(model[1]) is kind
    rn.convert(adapted.model, rn.MaxNorm(), example=X[:1], calibration=X)


@pytest.mark.parametrize(
    ("kind", "bound"), [(nn.SiLU, 0.28), (nn.GELU, 0.17), (nn.Mish, 0.31), (nn.Hardswish, 0.38), (nn.Softplus, 0.7)]
)
def test_the_stated_differences_are_the_largest_ones(kind: type[nn.Module], bound: float) -> None:
    x = torch.linspace(-20, 20, 40_001)
    largest = float((kind()(x) - x.relu()).abs().max())
    assert bound - 0.01 <= largest <= bound
    assert f"{bound:g}" in NEAR[kind]


def test_weights_and_mode_are_kept() -> None:
    model = net(nn.GELU(), nn.ReLU()).train()
    adapted = rn.adapt(model).model
    assert adapted.training
    assert adapted[1].training
    for one, other in zip(model.parameters(), adapted.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_cannot_be_replaced_is_left_and_told() -> None:
    adapted = rn.adapt(net(nn.Sigmoid(), nn.SiLU(), nn.LayerNorm(8)), X[:1])
    assert [change.before for change in adapted.changes] == ["SiLU"]
    assert [entry.name for entry in adapted.obstacles] == ["1", "5"]
    assert "fine-tune" in str(adapted).lower()
    assert "still in the way (2)" in str(adapted)
    assert "LayerNorm" in adapted._repr_html_()


def test_rate_norm_layers_hand_on_activations() -> None:
    layer = rn.adapt(net(nn.SiLU()), to="rate_norm").model[1]
    assert isinstance(layer, rn.RateNorm)
    assert layer.output == "activation"


def test_a_network_without_such_activations_is_left_as_it_is() -> None:
    assert "replaced nothing" in str(rn.adapt(net(nn.ReLU()), X[:1]))


@pytest.mark.parametrize("to", ["tanh", None])
def test_wrong_targets_are_refused(to: str) -> None:
    with pytest.raises(UsageError, match="must be 'relu' or 'rate_norm'"):
        rn.adapt(net(nn.ReLU()), to=to)  # type: ignore[arg-type]


def test_equal_obstacles_share_a_line() -> None:
    text = str(rn.inspect(net(nn.SiLU(), nn.SiLU(), nn.SiLU()), X[:1]))
    assert "cannot be converted (3):" in text
    assert "1, 3, 5: SiLU has no spiking form here (3 times)" in text
