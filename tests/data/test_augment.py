import json

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from ratenorm.data import AUGMENTS, Augment, augment, generator_for
from ratenorm.data.augment import Draws, apply_draws, draw
from ratenorm.errors import UsageError


def batch(count=6, height=7, width=9, dtype=torch.uint8):
    images = torch.randint(1, 256, (count, 3, height, width), generator=generator_for(0, "images"))
    return images.to(dtype)


def slow(images, config, draws):
    """The same, image by image, with padding, cropping and flipping spelled out."""
    results = []
    for index, image in enumerate(images.double()):
        height, width = image.shape[1:]
        if draws.flip is not None and draws.flip[index]:
            image = image.flip(-1)
        if draws.shift is not None:
            pad = config.shift
            mode = "reflect" if config.padding == "reflect" else "constant"
            padded = F.pad(image[None], (pad,) * 4, mode=mode)[0]
            down, right = draws.shift[index].tolist()
            top, left = pad - down, pad - right
            image = padded[:, top : top + height, left : left + width]
        if draws.cutout is not None:
            image = image.clone()
            row, column = (draws.cutout[index] - config.cutout // 2).tolist()
            rows = slice(max(row, 0), max(row + config.cutout, 0))
            columns = slice(max(column, 0), max(column + config.cutout, 0))
            image[:, rows, columns] = 0
        results.append(image)
    return torch.stack(results).to(images.dtype)


configs = st.builds(
    Augment,
    shift=st.integers(0, 4),
    padding=st.sampled_from(["zero", "reflect"]),
    flip=st.sampled_from(["none", "random", "alternating"]),
    cutout=st.integers(0, 5),
)


@settings(max_examples=50, deadline=None)
@given(
    config=configs,
    seed=st.integers(0, 999),
    epoch=st.integers(0, 3),
    dtype=st.sampled_from([torch.uint8, torch.float32]),
)
def test_equals_padding_cropping_and_flipping_image_by_image(config, seed, epoch, dtype):
    images = batch(dtype=dtype)
    before = images.clone()
    draws = draw(config, 6, (7, 9), generator_for(seed), epoch)
    result = augment(images, config, generator_for(seed), epoch)
    assert torch.equal(result, slow(images, config, draws))
    assert result.dtype == dtype
    assert torch.equal(images, before), "the batch itself is not changed"


@settings(max_examples=20, deadline=None)
@given(config=configs, start=st.integers(0, 6), stop=st.integers(0, 6))
def test_a_part_of_the_batch_uses_the_same_numbers(config, start, stop):
    images = batch()
    draws = draw(config, 6, (7, 9), generator_for(3))
    whole = apply_draws(images, config, draws)
    assert torch.equal(apply_draws(images[start:stop], config, draws.part(start, stop)), whole[start:stop])


def test_every_shift_occurs_and_none_beyond():
    shift = draw(Augment(shift=2), 2000, (8, 8), generator_for(0)).shift
    assert shift.unique().tolist() == [-2, -1, 0, 1, 2]
    assert len(shift.unique(dim=0)) == 25


def test_random_flip_is_half_of_the_images():
    flip = draw(Augment(flip="random"), 2000, (8, 8), generator_for(0)).flip
    assert 900 < int(flip.sum()) < 1100


def test_alternating_flip_shows_each_image_both_ways_in_two_epochs():
    images, config = batch(), Augment(flip="alternating")
    phase = torch.tensor([True, False, False, True, True, False])
    even, odd, next_even = (augment(images, config, generator_for(0), epoch, phase) for epoch in range(3))
    assert torch.equal(even[phase], images[phase].flip(-1))
    assert torch.equal(even[~phase], images[~phase])
    assert torch.equal(odd, even.flip(-1))
    assert torch.equal(next_even, even)
    assert torch.equal(augment(images, config, generator_for(0), 1), images.flip(-1)), "without phase: odd epochs"


def test_nothing_to_do_gives_an_equal_copy():
    images = batch()
    result = augment(images, Augment(), generator_for(0))
    assert torch.equal(result, images)
    assert result.data_ptr() != images.data_ptr()


def test_same_generator_same_result():
    images, config = batch(), Augment(2, "zero", "random", 3)
    first, second = (augment(images, config, generator_for(5)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, augment(images, config, generator_for(6)))


def test_config_goes_to_json_and_back():
    for config in (*AUGMENTS.values(), Augment(1, "reflect", "random", 7)):
        assert Augment.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shift": -1}, "shift must be a whole number of pixels, 0 or more, got -1"),
        ({"shift": True}, "shift must be a whole number"),
        ({"cutout": 1.5}, "cutout must be a whole number of pixels, 0 or more, got 1.5"),
        ({"padding": "mirror"}, "padding must be one of zero, reflect, got 'mirror'"),
        ({"flip": "yes"}, "flip must be one of none, random, alternating, got 'yes'"),
        ({"rotate": 3}, "unknown key 'rotate', known are shift, padding, flip, cutout"),
    ],
)
def test_config_errors(values, message):
    with pytest.raises(UsageError, match=message):
        Augment.from_dict(values)


def test_reflection_needs_a_shift_smaller_than_the_image():
    with pytest.raises(UsageError, match=r"images of 7x9: with reflect padding the shift must be smaller.* got 7"):
        augment(batch(), Augment(shift=7, padding="reflect"), generator_for(0))


def test_zero_padding_may_shift_an_image_out():
    images = batch(count=1)
    gone = apply_draws(images, Augment(shift=20), Draws(torch.tensor([[0, 20]]), None, None))
    assert int(gone.sum()) == 0
