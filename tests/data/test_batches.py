import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ratenorm.data import Augment, Batches, ImageSet, Normalisation, from_dataset, generator_for
from ratenorm.errors import DataError, UsageError

FULL = {
    "shuffle": True,
    "seed": 7,
    "augment": Augment(2, "reflect", "alternating", 2),
    "normalise": Normalisation((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)),
}


def numbered(count: int) -> ImageSet:
    """Image i is one pixel of value i: a batch tells which images it holds."""
    return from_dataset((torch.arange(count).float().reshape(-1, 1, 1, 1), torch.arange(count) % 4))


def equal(left, right):
    left, right = list(left), list(right)
    return len(left) == len(right) and all(
        torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(left, right)
    )


def test_in_order_without_shuffle(make_set):
    images = make_set(10)
    batches = list(Batches(images, 4))
    assert [len(y) for _, y in batches] == [4, 4, 2]
    assert torch.equal(torch.cat([x for x, _ in batches]), images.images / 255)
    assert torch.equal(torch.cat([y for _, y in batches]), images.labels)
    assert len(Batches(images, 4)) == 3


def test_drop_last(make_set):
    assert [len(y) for _, y in Batches(make_set(10), 4, drop_last=True)] == [4, 4]


def test_normalises(make_set):
    images = make_set(4)
    x, _ = next(iter(Batches(images, 4, normalise=FULL["normalise"])))
    assert torch.equal(x, FULL["normalise"](images.images / 255))
    assert x.dtype == torch.float32


def test_shuffled_epochs_hold_every_image_once_in_another_order():
    batches = Batches(numbered(30), 8, shuffle=True, seed=1)
    epochs = [torch.cat([x.flatten() for x, _ in batches.epoch(epoch)]) for epoch in range(3)]
    for order in epochs:
        assert sorted(order.tolist()) == list(range(30))
    assert len({tuple(order.tolist()) for order in epochs}) == 3
    labels = torch.cat([y for _, y in batches.epoch(2)])
    assert torch.equal(labels, epochs[2].long() % 4), "labels go with their images"


@settings(max_examples=25, deadline=None)
@given(count=st.integers(1, 20), size=st.integers(1, 8), epoch=st.integers(0, 5), data=st.data())
def test_starting_inside_an_epoch_is_the_same_as_going_there(count, size, epoch, data):
    images = ImageSet(
        "made",
        torch.randint(0, 256, (count, 3, 5, 5), generator=generator_for(count), dtype=torch.uint8),
        torch.zeros(count, dtype=torch.int64),
        ("a",),
    )
    batches = Batches(images, size, **FULL)
    start = data.draw(st.integers(0, len(batches)))
    whole = list(batches.epoch(epoch))
    assert equal(Batches(images, size, **FULL).epoch(epoch, start), whole[start:])


def test_interleaved_epochs_do_not_disturb_each_other(make_set):
    batches = Batches(make_set(20), 5, **FULL)
    alone = list(batches.epoch(1))
    first, second = batches.epoch(0), batches.epoch(1)
    torch.manual_seed(0)
    mixed = [pair[1] for pair in zip(first, second)]
    assert equal(mixed, alone)


def test_global_random_state_is_neither_read_nor_moved(make_set):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    list(Batches(make_set(8), 4, **FULL))
    assert torch.equal(torch.get_rng_state(), before)


def test_every_batch_draws_its_own_numbers():
    alike = torch.arange(64, dtype=torch.uint8).reshape(1, 1, 8, 8).expand(16, -1, -1, -1)
    images = from_dataset((alike, torch.zeros(16, dtype=torch.int64)))
    first, second = (x for x, _ in Batches(images, 8, augment=Augment(shift=3)))
    assert not torch.equal(first, second)


def test_seed_and_epoch_matter(make_set):
    images = make_set(20)
    base = Batches(images, 20, **FULL)
    other = Batches(images, 20, **{**FULL, "seed": 8})
    assert not equal(base.epoch(0), other.epoch(0))
    assert not equal(base.epoch(0), base.epoch(1))


@pytest.mark.parametrize(("world", "count"), list(itertools.product([1, 2, 4], [16, 19, 17])))
def test_shards_put_together_are_the_batch(make_set, world, count):
    images = make_set(count)
    whole = list(Batches(images, 8, **FULL).epoch(3))
    shards = [list(Batches(images, 8, **FULL, rank=r, world_size=world).epoch(3)) for r in range(world)]
    together = [(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])) for parts in zip(*shards)]
    assert equal(together, whole)
    assert {len(shard[0][1]) for shard in shards} == {8 // world}


def test_alternating_flip_follows_the_image_through_the_shuffle():
    pixels = torch.zeros(12, 1, 1, 2, dtype=torch.uint8)
    pixels[:, 0, 0, 0] = torch.arange(1, 13, dtype=torch.uint8)  # left pixel: who it is; right pixel: 0
    images = from_dataset((pixels, torch.zeros(12, dtype=torch.int64)))
    batches = Batches(images, 5, shuffle=True, seed=2, augment=Augment(flip="alternating"))

    def mirrored(epoch):
        x = torch.cat([x for x, _ in batches.epoch(epoch)])[:, 0, 0]
        who = (x.sum(dim=1) * 255).round().int()
        return {int(name): bool(row[0] == 0) for name, row in zip(who, x)}

    first, second, third = (mirrored(epoch) for epoch in range(3))
    assert 0 < sum(first.values()) < 12
    assert second == {name: not flipped for name, flipped in first.items()}
    assert third == first


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_name_the_batch(value):
    images = numbered(10)
    images.images[7] = value
    batches = Batches(images, 4)
    with pytest.raises(DataError, match=r"batch 1 of epoch 2 of 'custom': 1 of 4 images.* first is image 7"):
        list(batches.epoch(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_size": 4, "rank": 2, "world_size": 2}, "got rank 2 of 2"),
        ({"batch_size": 4, "rank": -1}, "got rank -1 of 1"),
        ({"batch_size": 5, "world_size": 2}, "batch_size 5 cannot be shared evenly by 2 processes"),
        ({"batch_size": 11, "drop_last": True}, "drop_last leaves nothing of 10 images in batches of 11"),
        (
            {"batch_size": 5, "normalise": Normalisation((0.5,), (0.5,))},
            "3 channels, the normalisation has 1",
        ),
    ],
)
def test_option_errors(make_set, options, message):
    with pytest.raises(UsageError, match=f"Batches of 'made': .*{message}"):
        Batches(make_set(10), **options)


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1), (0, 4)])
def test_epoch_errors_at_the_call(make_set, epoch, start):
    with pytest.raises(UsageError, match=f"got epoch {epoch}, start {start}"):
        Batches(make_set(10), 4).epoch(epoch, start)


def test_generators_are_pinned():
    # A change here would make every old checkpoint resume with other data.
    assert torch.randint(0, 1000, (3,), generator=generator_for(0, "order", 1)).tolist() == [348, 814, 41]
