"""The current at rest: what it is, that the weights can lower it, and what else is asked of early rates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from builders import image_set, randomise_batch_norm_, set_maxima_
from ratenorm.core.rate_norm import RateNorm, rate_norm_layers
from ratenorm.errors import TrainingError, UsageError
from ratenorm.models import preact_resnet20, vgg11
from ratenorm.train.config import Stage1
from ratenorm.train.rates import after_steps, steps_at
from ratenorm.train.rest import at_rest, resting
from ratenorm.train.stage1 import train_accuracy


def deep_net(**norm: bool) -> nn.Sequential:
    """Three layers, the first of which sees the image."""
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, **norm), RateNorm()),
        nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4, **norm), RateNorm()),
        nn.Flatten(),
        nn.Linear(64, 6),
        RateNorm(),
        nn.Linear(6, 3),
    )
    if not norm:
        randomise_batch_norm_(model)
    set_maxima_(model, image_set().images)
    for _, layer in rate_norm_layers(model):
        layer.freeze_()
    return model


def currents(model: nn.Sequential) -> list[float]:
    """Mean square of the current at rest of the second and third layer, by showing them nothing."""
    model.eval()
    with torch.no_grad():
        second = model[1][:2](torch.zeros(1, 4, 6, 6))[:, :, 0, 0] / model[1][2].threshold
        third = model[3](torch.zeros(1, 64)) / model[4].threshold
    return [float(found.square().mean()) for found in (second, third)]


@pytest.mark.parametrize("shape", [(12, 5, 6, 6), (12, 5)], ids=["images", "vectors"])
@pytest.mark.parametrize("affine", [True, False])
def test_the_current_at_rest_is_what_batch_norm_makes_of_nothing(shape: tuple[int, ...], affine: bool) -> None:
    torch.manual_seed(0)
    norm = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(5, affine=affine, momentum=1.0)
    randomise_batch_norm_(norm)
    x = torch.randn(shape) * 3.0 + 2.0
    norm.train()(x)  # running statistics: those of x
    found = at_rest(norm, x)
    nothing = norm.eval()(torch.zeros_like(x))
    torch.testing.assert_close(found, nothing.flatten(2)[0, :, 0] if x.ndim > 2 else nothing[0])


def test_every_layer_but_the_first_is_asked() -> None:
    model = deep_net()
    model.train()
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.momentum = 1.0
    with resting(model) as found:
        model(image_set().images)
    assert [float(f.detach()) for f in found] == pytest.approx(currents(model), rel=1e-5)
    with resting(model, False) as found:
        model(image_set().images)
    assert found == []


@pytest.mark.parametrize(("make", "layers"), [(preact_resnet20, 19), (vgg11, 10)])
def test_the_networks_of_the_paper_are_asked_of_all_their_layers(make, layers: int) -> None:  # type: ignore[no-untyped-def]
    model = make(activation=RateNorm).train()
    assert len(list(rate_norm_layers(model))) == layers
    with torch.no_grad(), resting(model) as found, torch.autocast("cpu", torch.bfloat16):
        model(torch.randn(2, 3, 32, 32))
    assert len(found) == layers - 1


def test_a_rest_in_stage_1_lowers_the_currents_by_the_weights() -> None:
    found = []
    for rest in (None, 3.0):
        model = deep_net()
        config = Stage1(epochs=4, batch_size=10, lr=0.02, holdout=0, rest=rest)
        outcome = train_accuracy(model, image_set(), config, show=False)
        assert ("rest" in outcome.history[-1]) is (rest is not None)
        found.append(currents(model))
    (second, third), asked = found
    assert asked[0] < 0.9 * second  # behind BatchNorm, whose running mean follows slowly
    assert asked[1] < 0.1 * third  # a bias alone
    assert outcome.history[-1]["loss"] < outcome.history[0]["loss"]


def test_the_weights_before_a_batch_norm_can_lower_it() -> None:
    conv, norm = nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3)
    at_rest(norm, conv(torch.rand(4, 2, 5, 5))).square().sum().backward()
    assert float(conv.weight.grad.abs().min()) > 0.0


def test_the_batch_of_all_processes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    norm, x = randomise_batch_norm_(nn.BatchNorm2d(5)), torch.randn(8, 5, 3, 3)
    whole = at_rest(norm, x)
    other = torch.cat([x[3:].mean((2, 3)).sum(0, dtype=torch.float64), torch.tensor([5.0], dtype=torch.float64)])

    def together(own: Tensor) -> Tensor:
        return own + other

    monkeypatch.setattr("ratenorm.train.rest.total_with_gradient", together)
    torch.testing.assert_close(at_rest(norm, x[:3]), whole)  # parts need not be equal


def test_a_bias_that_comes_by_way_of_something_else_is_not_taken_for_a_mean() -> None:
    """BatchNorm takes it away again: nothing is at rest, and nothing may be asked of it."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.late = RateNorm()  # registered first, called last
            self.stem, self.norm, self.early = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), RateNorm()
            self.conv, self.pool, self.behind = nn.Conv2d(2, 2, 3), nn.AvgPool2d(2), nn.BatchNorm2d(2)
            self.direct, self.last = nn.Linear(8, 3), RateNorm()

        def forward(self, x: Tensor) -> Tensor:
            x = self.early(self.norm(self.stem(x)))
            x = self.late(self.behind(self.pool(self.conv(x))))
            return self.last(self.direct(x.flatten(1)))

    model = Model().train()
    for _, layer in rate_norm_layers(model):
        layer.freeze_()
    with resting(model) as found:
        model(torch.rand(4, 1, 8, 8))
    assert len(found) == 1  # neither the first to be called, nor the one behind the pool
    expected = (model.direct.bias / model.last.threshold).square().mean()
    torch.testing.assert_close(found[0], expected)


def test_what_cannot_be_asked_is_said() -> None:
    for wrong in (0.0, -1.0, float("inf")):
        with pytest.raises(UsageError, match=r"rest is .*must be positive"):
            Stage1(rest=wrong)
    with pytest.raises(UsageError, match=r"steps is 0.*\(--early\); it must be positive"):
        Stage1(steps=0)
    config = Stage1(epochs=1, batch_size=10, holdout=0, rest=1.0)
    bare = nn.Sequential(nn.Conv2d(1, 2, 3), RateNorm(), nn.Flatten(), nn.Linear(72, 3))
    with pytest.raises(TrainingError, match="no Rate Norm layer but the first"):
        train_accuracy(bare, image_set(), config, show=False)
    with pytest.raises(TrainingError, match="keeps no running statistics"):
        train_accuracy(deep_net(track_running_stats=False), image_set(), config, show=False)


def test_the_steps_of_a_batch_are_drawn_by_what_is_missing_after_them() -> None:
    config = Stage1(steps=16, seed=3)
    drawn = [steps_at(config, step) for step in range(2000)]
    assert drawn == [steps_at(config, step) for step in range(2000)]
    assert drawn != [steps_at(Stage1(steps=16, seed=4), step) for step in range(2000)]
    assert min(drawn) == 16  # type: ignore[type-var]
    missing = torch.tensor([16 / steps for steps in drawn if steps])
    assert torch.histc(missing, 4, 0.0, 1.0).tolist() == pytest.approx([500] * 4, rel=0.15)
    assert steps_at(Stage1(), 5) is None


def test_layers_hand_on_early_rates_for_a_while_only() -> None:
    layers = [layer for _, layer in rate_norm_layers(deep_net())]

    def fail() -> None:
        with after_steps(layers, 8):
            assert [layer.steps for layer in layers] == [8, 8, 8]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [layer.steps for layer in layers] == [None] * 3


def test_stage_1_learns_with_early_rates() -> None:
    """Few steps leave little of the rates, and the loss that is trained on sees it."""
    losses = []
    for steps in (None, 1):
        config = Stage1(epochs=1, batch_size=60, lr=1e-9, holdout=0, steps=steps)
        losses.append(train_accuracy(deep_net(), image_set(), config, show=False).history[-1]["loss"])
    assert losses[0] != losses[1]
