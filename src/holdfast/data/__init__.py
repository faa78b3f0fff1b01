"""Images and labels as arrays: one table of readers, which all yield an ``ImageSet`` in canonical order."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.data.images import ImageSet, canonical, first_per_class
from holdfast.data.openset import OpenSet, open_set
from holdfast.data.readers.cifar import cifar10, cifar100
from holdfast.data.readers.cub import cub20, cub180
from holdfast.data.readers.faces import casia_webface, celeba
from holdfast.data.readers.glyphs import glyphs
from holdfast.data.readers.image_files import csv_list, folder
from holdfast.data.readers.imagenet32 import imagenet32
from holdfast.data.readers.mnist import mnist
from holdfast.data.readers.npz import npz
from holdfast.data.readers.tiny_imagenet import (
    tinyimagenet20,
    tinyimagenet32,
    tinyimagenet32_validation,
    tinyimagenet200,
)
from holdfast.data.readers.vectors import vectors
from holdfast.data.root import data_root
from holdfast.errors import HoldfastError, unknown_name

__all__ = [
    "DATASETS",
    "ImageSet",
    "OpenSet",
    "canonical",
    "data_root",
    "first_per_class",
    "load_split",
    "open_set",
]

# Each is loader(root, split, *, options): the signature says which options there are.
DATASETS: dict[str, Callable[..., ImageSet]] = {
    "glyphs": glyphs,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "tinyimagenet32": tinyimagenet32,
    "tinyimagenet32_validation": tinyimagenet32_validation,
    "tinyimagenet200": tinyimagenet200,
    "tinyimagenet20": tinyimagenet20,
    "cub180": cub180,
    "cub20": cub20,
    "imagenet32": imagenet32,
    "casia_webface": casia_webface,
    "celeba": celeba,
    "mnist": mnist,
    "npz": npz,
    "folder": folder,
    "csv": csv_list,
    "vectors": vectors,
}


def load_split(
    name: str, split: str, root: str | Path | None = None, per_class: int | None = None, **options: Any
) -> ImageSet:
    """Read one split of a dataset; ``per_class`` keeps at most so many images of each class."""
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    loader = DATASETS[name]
    where = data_root(root)
    try:
        inspect.signature(loader).bind(where, split, **options)
    except TypeError as error:
        known = ", ".join(list(inspect.signature(loader).parameters)[2:]) or "none"
        raise HoldfastError(f"dataset {name!r}: {error}; its options: {known}") from None
    images = loader(where, split, **options)
    return images if per_class is None else first_per_class(images, per_class)
