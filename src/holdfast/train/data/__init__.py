"""Images and labels as arrays, and the table of datasets that can be read by name."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.train.data.images import ImageSet, canonical, first_per_class
from holdfast.train.data.listing import FileListing
from holdfast.train.data.openset import OpenSet, open_set
from holdfast.train.data.readers import tiny_imagenet
from holdfast.train.data.readers.cifar import cifar10, cifar100
from holdfast.train.data.readers.glyphs import glyphs
from holdfast.train.data.readers.image_files import csv_list, folder
from holdfast.train.data.readers.npz import npz
from holdfast.train.data.readers.vectors import vectors
from holdfast.train.data.root import data_root

__all__ = [
    "DATASETS",
    "READERS",
    "Dataset",
    "ImageSet",
    "OpenSet",
    "add_dataset",
    "canonical",
    "data_root",
    "first_per_class",
    "load_split",
    "open_set",
]


@dataclass(frozen=True)
class Dataset:
    """One dataset: how it is read and which files it is read from.

    read: called as ``read(root, split, **options)``; its signature defines the options.
    files: names in the data root that the reader looks for, in this order. Empty if no file is needed or if the
        option ``path`` names it.
    list_files: lists the image files and checks their number without decoding any; called as
        ``list_files(root, split, path, incomplete)``. None if the number is not known or the set is not image files.
    """

    read: Callable[..., ImageSet]
    files: tuple[str, ...] = ()
    list_files: Callable[[Path, str, str, bool], FileListing] | None = None

    def find(self, root: Path) -> Path | None:
        """The file or folder in ``root`` that would be read; None if there is none."""
        return next((root / name for name in self.files if (root / name).exists()), None)


DATASETS: dict[str, Dataset] = {
    "glyphs": Dataset(glyphs),
    "cifar10": Dataset(cifar10, ("cifar10.npz", "cifar-10-batches-py", "cifar-10-python.tar.gz")),
    "cifar100": Dataset(cifar100, ("cifar100.npz", "cifar-100-python", "cifar-100-python.tar.gz")),
    "tinyimagenet32": Dataset(tiny_imagenet.tinyimagenet32, ("tinyimagenet32.npz", tiny_imagenet.FOLDER)),
    "tinyimagenet200": Dataset(
        tiny_imagenet.tinyimagenet200, (tiny_imagenet.FOLDER,), list_files=tiny_imagenet.list_files_200
    ),
    "npz": Dataset(npz),
    "folder": Dataset(folder),
    "csv": Dataset(csv_list),
    "vectors": Dataset(vectors),
}

READERS: dict[str, Callable[..., ImageSet]] = {name: dataset.read for name, dataset in DATASETS.items()}
"""The reader of each dataset: its signature defines the options of the dataset."""


def add_dataset(name: str, dataset: Dataset) -> None:
    """Make a dataset of your own known by name, to ``load_split`` and to recipes."""
    DATASETS[name], READERS[name] = dataset, dataset.read


def load_split(
    name: str, split: str, root: str | Path | None = None, per_class: int | None = None, **options: Any
) -> ImageSet:
    """Read one split of a dataset.

    name: a key of ``DATASETS``.
    split: such as "train" or "test"; each dataset has its own.
    root: folder of the datasets; None takes the environment variable HOLDFAST_DATA, or else ``./data``.
    per_class: keep at most this many images of each class, the first in canonical order; None keeps all.
    options: the options of the dataset.

    >>> len(load_split("glyphs", "query", train_classes=2, test_classes=3, per_class_query=4))
    12
    """
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    reader = DATASETS[name].read
    base = data_root(root)
    try:
        inspect.signature(reader).bind(base, split, **options)
    except TypeError as error:
        known = ", ".join(list(inspect.signature(reader).parameters)[2:]) or "none"
        raise HoldfastError(f"dataset {name!r}: {error}; its options: {known}") from None
    images = reader(base, split, **options)
    return images if per_class is None else first_per_class(images, per_class)
