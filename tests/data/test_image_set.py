from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ratenorm.data import (
    NORMALISATIONS,
    ImageSet,
    Normalisation,
    from_dataset,
    measure_normalisation,
    split_holdout,
)
from ratenorm.errors import DataError, UsageError


def test_is_a_dataset_of_floats(make_set):
    images = make_set(5)
    image, label = images[4]
    assert len(images) == 5
    assert image.dtype == torch.float32
    assert torch.equal(image, images.images[4] / 255)
    assert label == 1
    assert isinstance(label, int)
    assert len(list(images)) == 5
    assert images.image_shape == (3, 8, 8)
    with pytest.raises(IndexError):
        images[5]
    with pytest.raises(FrozenInstanceError):
        images.name = "other"


def test_works_with_the_loader_of_torch(make_set):
    x, y = next(iter(torch.utils.data.DataLoader(make_set(6), batch_size=4)))
    assert x.shape == (4, 3, 8, 8)
    assert y.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": torch.zeros(3, 8, 8, dtype=torch.uint8)}, r"\[N, C, H, W\], got \[3, 8, 8\].*unsqueeze"),
        ({"images": torch.zeros(3, 1, 8, 8, dtype=torch.int32)}, "uint8 or float32, got torch.int32"),
        ({"labels": torch.zeros(3)}, "labels must be int64"),
        ({"labels": torch.zeros(3, 1, dtype=torch.int64)}, r"shape \[3, 1\]"),
        ({"labels": torch.zeros(2, dtype=torch.int64)}, "3 images but 2 labels"),
        ({"labels": torch.tensor([0, 1, 3])}, "image 2 has label 3, allowed are 0 to 2"),
        ({"labels": torch.tensor([0, -1, 2])}, "image 1 has label -1"),
        (
            {
                "images": torch.zeros(0, 1, 8, 8, dtype=torch.uint8),
                "labels": torch.zeros(0, dtype=torch.int64),
            },
            "no image in it",
        ),
    ],
)
def test_refuses_what_does_not_fit(make_set, change, message):
    with pytest.raises(DataError, match=f"Making the image set 'made': .*{message}"):
        replace(make_set(3), **change)


def test_subset_by_index_and_by_mask(make_set):
    images = make_set(6)
    chosen = images.subset([4, 0])
    assert torch.equal(chosen.images, images.images[[4, 0]])
    assert chosen.labels.tolist() == [1, 0]
    assert chosen.classes == images.classes
    assert images.subset(images.labels == 2).labels.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([6], "index 6 is outside 0 to 5"),
        ([-1], "index -1 is outside"),
        ([], "non-empty"),
        ([0.5], "list of integers"),
        (torch.tensor([True]), r"mask has shape \[1\], needed is \[6\]"),
        (torch.zeros(6, dtype=torch.bool), "non-empty"),
    ],
)
def test_subset_errors(make_set, indices, message):
    with pytest.raises(UsageError, match=f"Choosing from 'made': .*{message}"):
        make_set(6).subset(indices)


@settings(max_examples=50, deadline=None)
@given(labels=st.lists(st.integers(0, 4), min_size=2, max_size=60), seed=st.integers(0, 2**31), data=st.data())
def test_holdout_is_stratified_disjoint_and_repeatable(labels, seed, data):
    count = data.draw(st.integers(1, len(labels) - 1))
    identity = torch.arange(len(labels), dtype=torch.float32).reshape(-1, 1, 1, 1)
    images = ImageSet("numbered", identity, torch.tensor(labels), tuple("abcde"))
    rest, held = split_holdout(images, count, seed)
    assert len(held) == count
    together = sorted(rest.images.flatten().tolist() + held.images.flatten().tolist())
    assert together == identity.flatten().tolist()
    for label in range(5):
        share = labels.count(label) * count / len(labels)
        assert abs(int((held.labels == label).sum()) - share) < 1
    for part in (rest, held):
        assert bool((part.images.flatten().diff() > 0).all()), "the order is kept"
    assert torch.equal(split_holdout(images, count, seed)[1].images, held.images)


def test_holdout_depends_on_the_seed_and_checks_the_count(make_set):
    images = make_set(60)
    first, second = (split_holdout(images, 12, seed)[1].images for seed in (0, 1))
    assert not torch.equal(first, second)
    for count in (0, 60, -1):
        with pytest.raises(UsageError, match=f"Holding out {count} images of 'made': choose between 1 and 59"):
            split_holdout(images, count, 0)


class Items(torch.utils.data.Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class TestFromDataset:
    def test_an_image_set_is_returned_as_it_is(self, make_set):
        images = make_set()
        assert from_dataset(images) is images

    def test_pair_of_tensors(self):
        images = torch.rand(3, 1, 2, 2, dtype=torch.float64)
        made = from_dataset((images, torch.tensor([0, 2, 1], dtype=torch.int32)), name="mine")
        assert torch.equal(made.images, images.float())
        assert made.labels.dtype == torch.int64
        assert made.classes == ("0", "1", "2")
        assert made.name == "mine"

    def test_any_dataset(self):
        items = [(torch.full((1, 2, 2), index, dtype=torch.uint8), index % 2) for index in range(4)]
        made = from_dataset(Items(items), classes=("even", "odd", "none"))
        assert made.images[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
        assert made.labels.tolist() == [0, 1, 0, 1]
        assert made.classes == ("even", "odd", "none")

    def test_tensor_dataset_with_tensor_labels(self):
        data = torch.utils.data.TensorDataset(torch.rand(3, 1, 2, 2), torch.tensor([0, 1, 1]))
        assert from_dataset(data).labels.tolist() == [0, 1, 1]

    @pytest.mark.parametrize(
        ("dataset", "message"),
        [
            (iter([]), "has no length or no items"),
            (Items([]), "it is empty"),
            (Items([torch.zeros(1, 2, 2)]), r"item 0 must be a pair \(image, label\), got Tensor"),
            (Items([("a.png", 1)]), r"got \(str, int\)"),
            (Items([(torch.zeros(1, 2, 2), 0.5)]), "label of item 0 must be one integer, got 0.5"),
            (Items([(torch.zeros(1, 2, 2), torch.tensor(1.0))]), "must be one integer"),
            (Items([(torch.zeros(1, 2, 2), 0), (torch.zeros(1, 3, 2), 0)]), r"item 1 is .*\[1, 3, 2\]"),
            ((torch.zeros(2, 1, 2, 2), torch.zeros(2)), "labels must be integers, got torch.float32"),
            ((torch.zeros(2, 1, 2, 2).int(), torch.zeros(2).long()), "uint8 .* or floating point"),
            ((torch.zeros(2, 2, 2), torch.zeros(2).long()), "unsqueeze"),
            ((torch.zeros(0, 1, 2, 2), torch.zeros(0).long()), "no image in it"),
        ],
    )
    def test_errors(self, dataset, message):
        with pytest.raises(DataError, match=message):
            from_dataset(dataset)


class TestNormalisation:
    def test_measured_set_has_mean_zero_and_std_one(self, make_set):
        images = make_set(9)
        normalised = measure_normalisation(images, chunk=4)(images.images / 255)
        assert normalised.mean(dim=(0, 2, 3)).abs().max() < 1e-5
        assert (normalised.std(dim=(0, 2, 3), correction=0) - 1).abs().max() < 1e-5

    def test_leaves_its_input_alone(self):
        images = torch.rand(2, 3, 4, 4)
        before = images.clone()
        NORMALISATIONS["cifar10"](images)
        assert torch.equal(images, before)

    def test_round_trip(self):
        for normalisation in NORMALISATIONS.values():
            assert Normalisation.from_dict(normalisation.to_dict()) == normalisation

    @pytest.mark.parametrize(
        ("mean", "std", "message"),
        [
            ((0.5,), (0.1, 0.1), "1 means and 2 stds"),
            ((), (), "0 means"),
            ((0.5,), (0.0,), "greater than 0"),
            ((float("nan"),), (1.0,), "every mean must be a finite"),
            ((0.5,), (float("inf"),), "every std must be a finite"),
        ],
    )
    def test_refuses_what_cannot_normalise(self, mean, std, message):
        with pytest.raises(UsageError, match=message):
            Normalisation(mean, std)

    def test_from_dict_errors(self):
        with pytest.raises(UsageError, match="keys 'mean' and 'std', found"):
            Normalisation.from_dict({"mean": [0.5]})
        with pytest.raises(UsageError, match="mean must be a list of numbers"):
            Normalisation.from_dict({"mean": ["x"], "std": [1.0]})
        with pytest.raises(UsageError, match="std must be a list of numbers"):
            Normalisation.from_dict({"mean": [0.5], "std": 1.0})

    def test_wrong_channels(self):
        with pytest.raises(DataError, match="have 1 channels, the normalisation has 3"):
            NORMALISATIONS["cifar10"](torch.zeros(2, 1, 4, 4))

    def test_nothing_to_measure(self):
        flat = from_dataset((torch.zeros(2, 1, 2, 2), torch.zeros(2).long()))
        with pytest.raises(DataError, match=r"every pixel of channel \[0\] has the same value"):
            measure_normalisation(flat)
        broken = from_dataset((torch.full((2, 1, 2, 2), torch.nan), torch.zeros(2).long()))
        with pytest.raises(DataError, match="NaN or infinity"):
            measure_normalisation(broken)
