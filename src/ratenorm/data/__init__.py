"""Data: known sets in their official files, a user's own, augmentation, and batches that can be resumed."""

from ratenorm.data.augment import AUGMENTS, Augment, augment
from ratenorm.data.batches import Batches
from ratenorm.data.datasets import load, verify
from ratenorm.data.download import get
from ratenorm.data.files import FileStatus, SetStatus
from ratenorm.data.folder import load_folder
from ratenorm.data.image_set import ImageSet, split_holdout
from ratenorm.data.normalise import NORMALISATIONS, Normalisation, measure_normalisation
from ratenorm.data.own_data import batches_of, from_dataset
from ratenorm.data.sample import sample
from ratenorm.data.seeds import generator_for
from ratenorm.data.sets import data_root

__all__ = [
    "AUGMENTS",
    "NORMALISATIONS",
    "Augment",
    "Batches",
    "FileStatus",
    "ImageSet",
    "Normalisation",
    "SetStatus",
    "augment",
    "batches_of",
    "data_root",
    "from_dataset",
    "generator_for",
    "get",
    "load",
    "load_folder",
    "measure_normalisation",
    "sample",
    "split_holdout",
    "verify",
]
