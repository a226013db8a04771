"""Progressive resolution: what is shrunk, when, and that nothing of it stays in the network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ratenorm.data import ImageSet
from ratenorm.errors import UsageError
from ratenorm.models import build
from ratenorm.train.config import Stage1
from ratenorm.train.resolution import any_size, shrunk, size_at
from ratenorm.train.stage1 import train_accuracy


def test_the_first_part_is_small_and_the_rest_is_not() -> None:
    config = Stage1(small_size=24, small_part=0.5)
    assert [size_at(config, step, 10) for step in range(10)] == [24] * 5 + [0] * 5
    assert size_at(Stage1(), 0, 10) == 0


def test_shrinking_keeps_shape_ratio_and_mean_and_never_enlarges() -> None:
    images = torch.rand(2, 3, 32, 48)
    small = shrunk(images, 24)
    assert small.shape == (2, 3, 24, 36)
    assert torch.allclose(small.mean(), images.mean(), atol=0.02)
    assert torch.equal(shrunk(torch.full((1, 1, 32, 32), 0.5), 24), torch.full((1, 1, 24, 24), 0.5))
    assert shrunk(images, 32) is images
    assert shrunk(images, 0) is images


def test_pools_that_round_up_change_nothing_at_full_size() -> None:
    torch.manual_seed(0)
    model = build("vgg11", activation=nn.ReLU).eval()
    images = torch.rand(2, 3, 32, 32)
    plain = model(images)
    with any_size(model):
        assert torch.equal(model(images), plain)
        assert model(shrunk(images, 24)).shape == plain.shape
    assert not any(m.ceil_mode for m in model.modules() if isinstance(m, nn.AvgPool2d))


def test_a_network_trains_on_small_images_first_and_takes_full_ones_after() -> None:
    sides: list[int] = []
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(4, 2))
    model[0].register_forward_pre_hook(lambda _, inputs: sides.append(inputs[0].shape[-1]))
    data = ImageSet("toy", torch.randint(0, 256, (8, 1, 4, 4), dtype=torch.uint8), torch.arange(8) % 2, ("a", "b"))
    config = Stage1(epochs=2, batch_size=4, holdout=0, small_size=3, small_part=0.5)
    train_accuracy(model, data, config, show=False)
    assert sides == [3, 3, 4, 4]


@pytest.mark.parametrize("bad", [{"small_size": -1}, {"small_part": 1.0}])
def test_a_wrong_setting_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad))):
        Stage1(**bad)  # type: ignore[arg-type]
