"""A contract that every network of ours keeps: it converts completely, and the clipped ANN is the network itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from builders import randomise_batch_norm_, set_maxima_
from ratenorm import MaxNorm, convert, models, simulate
from ratenorm.core.rate_norm import RateNorm
from ratenorm.graph.net import run
from ratenorm.graph.ops import Affine
from ratenorm.models.alexnet import AlexNet
from ratenorm.models.vgg import PLANS, VGG


def shrunk(name: str, activation: type[nn.Module]) -> tuple[nn.Module, torch.Tensor]:
    """The same structure with few channels, so that a forward pass takes milliseconds."""
    if name == "cnn7":
        return models.CNN7(activation, width=4), torch.rand(3, 1, 28, 28)
    if name == "preact_resnet":
        return models.PreActResNet([1, 2, 1], [3, 4, 6], activation, 5), torch.rand(3, 3, 8, 8)
    if name == "vgg":
        return VGG(11, activation, 5), torch.rand(2, 3, 32, 32)
    return AlexNet(activation, 5, hidden=8), torch.rand(2, 1, 28, 28)


@pytest.fixture(autouse=True)
def _thin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLANS, 11, [4, "P", 4, "P", 4, "P", 4, "P", 512, "P"])


@pytest.mark.parametrize("name", ["cnn7", "alexnet", "vgg", "preact_resnet"])
@pytest.mark.parametrize("activation", [RateNorm, nn.ReLU], ids=["rate norm", "relu"])
def test_it_converts_completely(name: str, activation: type[nn.Module]) -> None:
    torch.manual_seed(2)
    model, x = shrunk(name, activation)
    randomise_batch_norm_(model.eval(), 3)
    method = MaxNorm()
    if activation is RateNorm:
        set_maxima_(model, x)
        method = None
    conversion = convert(model, method, example=x[:1], calibration=None if method is None else x)
    sites = [e.name for e in conversion.report.of("site")]
    expected = [n for n, m in model.named_modules() if isinstance(m, RateNorm | nn.ReLU)]
    assert sites == expected
    with torch.no_grad():
        output = model.eval()(x)
    torch.testing.assert_close(run(conversion.net, x), output, rtol=1e-3, atol=1e-3 * float(output.abs().max()))
    result = simulate(conversion.net, x, 8, engine="dense")
    assert torch.isfinite(result.logits).all()
    # a scale is left on skips alone: there are no weights on them that could take it
    left = [n.name for n in conversion.net if isinstance(n.op, Affine)]
    identities = [n for n, m in model.named_modules() if n.endswith("shortcut") and isinstance(m, nn.Identity)]
    assert len(left) == len(identities)
