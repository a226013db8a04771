"""Statistics taken anew: of the final weights and the rates asked for, of nothing but BatchNorm, on training images."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn

from builders import image_set, same_state, state_of, tiny_cnn
from ratenorm.core.rate_norm import RateNorm
from ratenorm.data import Augment, Batches
from ratenorm.errors import UsageError
from ratenorm.train.config import Stage1
from ratenorm.train.loop import accuracy
from ratenorm.train.settle import settle_
from ratenorm.train.stage1 import hold_out, stage_batches, train_accuracy

CONFIG = Stage1(epochs=2, batch_size=8, lr=0.05, holdout=12, augment=Augment(shift=1), ema=0.9)
STATISTICS = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def rate_net() -> nn.Module:
    torch.manual_seed(1)
    return tiny_cnn(RateNorm, channels=3)


def test_statistics_are_the_mean_of_those_of_the_batches() -> None:
    model, batches = rate_net(), Batches(image_set(60), 20, shuffle=True)
    settle_(model, batches, None, images=60)  # is forgotten
    settle_(model, batches, None, 3, images=21)  # the second batch is begun, so it counts
    with torch.no_grad():
        seen = [model[0](images).transpose(0, 1).flatten(1) for images, _ in itertools.islice(batches.epoch(3), 2)]
    torch.testing.assert_close(model[1].running_mean, torch.stack([x.mean(1) for x in seen]).mean(0))
    torch.testing.assert_close(model[1].running_var, torch.stack([x.var(1) for x in seen]).mean(0))


def test_nothing_but_statistics_changes() -> None:
    model = nn.Sequential(*rate_net(), nn.Dropout(0.5)).train()
    before, momentum = state_of(model), model[1].momentum
    draws = torch.get_rng_state()
    settle_(model, Batches(image_set(40), 20), 4)
    changed = {name for name, value in state_of(model).items() if not torch.equal(value, before[name])}
    assert changed == STATISTICS  # and not the maxima of Rate Norm, which run while it trains
    assert model.training
    assert model[1].training
    assert model[1].momentum == momentum
    assert torch.equal(torch.get_rng_state(), draws)  # as in evaluation: no dropout


def test_statistics_are_those_of_the_rates_after_so_many_steps() -> None:
    """Of a BatchNorm behind a Rate Norm layer: floor(T r) / T, and the layer hands on r as before afterwards."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Flatten(), RateNorm(), nn.BatchNorm1d(64)).eval()
    batches = Batches(image_set(40), 40)
    rates = model[:2](batches.images.images)
    for steps, expected in ((4, torch.floor(rates * 4) / 4), (None, rates)):
        settle_(model, batches, steps)
        torch.testing.assert_close(model[2].running_mean, expected.mean(0))
    assert torch.equal(model[:2](batches.images.images), rates)


def test_a_network_without_statistics_is_left_alone() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8, track_running_stats=False))
    before = state_of(model)
    settle_(model, Batches(image_set(20), 20), None)
    assert same_state(state_of(model), before)


def test_a_training_settles_its_average_on_images_it_has_learned_from() -> None:
    data, early = image_set(60), replace(CONFIG, steps=2)
    plain, settled = rate_net(), rate_net()
    train_accuracy(plain, data, early, show=False)
    outcome = train_accuracy(settled, data, replace(early, settle=5), show=False)
    assert not same_state(state_of(plain), state_of(settled))
    learned, held_out = hold_out(data, 12, 0)
    assert held_out is not None
    batches, checks = stage_batches(learned, held_out, 8, 0, None, early.augment)
    settle_(plain, batches, 5, early.epochs)
    assert same_state(state_of(plain), state_of(settled))
    assert checks is not None
    assert outcome.validation_accuracy == accuracy(settled, checks)
    assert not settled.training


@pytest.mark.parametrize("steps", [0, -5])
def test_statistics_are_those_of_at_least_one_step(steps: int) -> None:
    with pytest.raises(UsageError, match=r"Stage 1: settle is .*at least 1, or left out"):
        Stage1(settle=steps)
