"""What every engine promises: the same answers, counters and errors for every kind of network and coding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from builders import tiny_cnn, tiny_mlp
from ratenorm.convert.convert import convert
from ratenorm.convert.thresholds import ChannelNorm, MaxNorm
from ratenorm.core.coding import Coding, Constant, Poisson
from ratenorm.errors import SimulationError, UsageError
from ratenorm.graph.net import SpikingNet
from ratenorm.simulate.simulate import ENGINES, simulate, stream


class Residual(nn.Module):
    """A block with a skip connection, one with a concatenation, max-pooling, a global pool."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1, groups=2)
        self.third = nn.Conv2d(12, 5, 3, stride=2, padding=1)
        self.out = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.first(x).relu()
        b = (self.second(a) + a).relu()
        c = nn.functional.max_pool2d(torch.cat([a, b], 1), 2)
        return self.out(self.third(c).relu().mean((2, 3)))


NETS = {
    "cnn": (tiny_cnn, (1, 8, 8)),
    "mlp": (tiny_mlp, (6,)),
    "residual": (Residual, (1, 8, 8)),
}


@pytest.fixture(params=list(NETS))
def net(request: pytest.FixtureRequest) -> tuple[SpikingNet, torch.Tensor]:
    torch.manual_seed(0)
    build, shape = NETS[request.param]
    x = torch.rand(5, *shape)
    method = ChannelNorm() if request.param == "residual" else MaxNorm()
    return convert(build().eval(), method, example=x[:1], calibration=x, v0=0.5).net, x


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("coding", [Constant(), Poisson(1.0, seed=1)])
def test_every_engine_gives_the_same_figures(net: tuple[SpikingNet, torch.Tensor], engine: str, coding: Coding) -> None:
    network, x = net
    reference = simulate(network, x, 24, engine="dense", coding=coding, fit=True, first_spikes=True)
    found = simulate(network, x, 24, engine=engine, coding=coding, fit=True, first_spikes=True)
    assert found.steps == 24
    assert found.membrane_updates == reference.membrane_updates
    torch.testing.assert_close(found.logits, reference.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.synaptic_ops, reference.synaptic_ops, rtol=0, atol=0)
    for a, b in zip(reference.layers, found.layers, strict=True):
        assert torch.equal(a.counts, b.counts)
        assert torch.equal(a.first_spike, b.first_spike)
        torch.testing.assert_close(b.potential, a.potential, rtol=1e-4, atol=1e-4)
        assert float(b.spikes.sum()) == float(b.counts.sum())
        torch.testing.assert_close(b.fit.k, a.fit.k, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_streams_its_answers(net: tuple[SpikingNet, torch.Tensor], engine: str) -> None:
    network, x = net
    whole = simulate(network, x, 6, engine=engine).logits
    torch.testing.assert_close(torch.stack(list(stream(network, x, 6, engine=engine))), whole)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_image_is_answered_alike_in_any_batch(net: tuple[SpikingNet, torch.Tensor], engine: str) -> None:
    network, x = net
    coding = Poisson(1.0, seed=4)
    whole = simulate(network, x, 8, engine=engine, coding=coding, first_image=10)
    part = simulate(network, x[2:4], 8, engine=engine, coding=coding, first_image=12)
    torch.testing.assert_close(part.logits, whole.logits[:, 2:4])


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_leaves_its_arguments_alone(net: tuple[SpikingNet, torch.Tensor], engine: str) -> None:
    network, x = net
    before = network.map_tensors(torch.clone)
    images = x.clone()
    first = simulate(network, x, 5, engine=engine).logits
    assert torch.equal(x, images)
    assert network.same_as(before)
    assert torch.equal(simulate(network, x, 5, engine=engine).logits, first)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_counts_with_gradients_off_or_on(engine: str) -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 1, 8, 8)
    with torch.no_grad():
        one = convert(tiny_cnn(), MaxNorm(), example=x[:1], calibration=x).net
        counted = simulate(one, x, 5, engine=engine).synaptic_ops
    other = one.map_tensors(torch.clone)
    assert float(counted.sum()) > 0
    assert torch.equal(simulate(other, x, 5, engine=engine).synaptic_ops, counted)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_refuses_what_does_not_fit(engine: str) -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 1, 8, 8)
    network = convert(tiny_cnn(), MaxNorm(), example=x[:1], calibration=x).net
    with pytest.raises(SimulationError, match=r"the batch has shape \(2, 1, 7, 8\).*takes \[batch, 1, 8, 8\]"):
        simulate(network, x[:, :, 1:], 3, engine=engine)
    with pytest.raises(UsageError, match="steps is 0"):
        simulate(network, x, 0, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("space", [(8, 8), (3, 3), (8,)], ids=str)
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_padding_that_brings_a_pixel_to_a_target_twice(mode: str, space: tuple[int, ...], engine: str) -> None:
    """More than 16 channels, so that the event engine adds in blocks; a mirrored pixel lies in a window twice."""
    torch.manual_seed(0)
    conv = nn.Conv2d if len(space) == 2 else nn.Conv1d
    layers = [conv(3, 16, 3, padding=1), nn.ReLU(), conv(16, 32, 3, padding=1, padding_mode=mode), nn.ReLU()]
    size = 32 * torch.Size(space).numel()
    x = torch.rand(4, 3, *space)
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, 5)).eval()
    network = convert(model, MaxNorm(), example=x[:1], calibration=x).net
    dense, found = simulate(network, x, 24, engine="dense"), simulate(network, x, 24, engine=engine)
    assert float(dense.layers[1].counts.sum()) > 0
    for a, b in zip(dense.layers, found.layers, strict=True):
        assert torch.equal(a.counts, b.counts)
        assert torch.equal(a.potential, b.potential)


def test_an_unknown_engine_is_refused() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 1, 8, 8)
    network = convert(tiny_cnn(), MaxNorm(), example=x[:1], calibration=x).net
    with pytest.raises(UsageError, match="the engine is 'fast'; it must be one of auto, dense, event"):
        simulate(network, x, 3, engine="fast")
