"""Training classes on one side, queries and a gallery of other classes on the other.

One set made into queries and a gallery: a seeded half of each class's images is query, the other half gallery.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from holdfast.data.images import ImageSet, canonical, renumbering
from holdfast.errors import HoldfastError, unknown_name


@dataclass(frozen=True, eq=False)
class OpenSet:
    """Three sets of images of one shape; ``query`` and ``gallery`` share one list of class names."""

    train: ImageSet
    query: ImageSet
    gallery: ImageSet

    @property
    def overlap(self) -> tuple[str, ...]:
        """The training classes that are also queried; with any, the evaluation is not open-set."""
        queried = _present(self.query)
        return tuple(sorted(name for name in _present(self.train) if name in queried))

    @property
    def fingerprint(self) -> str:
        whole = hashlib.blake2b(digest_size=16)
        for part in (self.train, self.query, self.gallery):
            whole.update(bytes.fromhex(part.fingerprint))
        return whole.hexdigest()


def open_set(train: ImageSet, query: ImageSet, gallery: ImageSet, *, train_crop: int = 0) -> OpenSet:
    """Put queries and gallery on the class names that the gallery has images of, in the gallery's order.

    Training classes without an image are dropped: one file may name the classes of all its splits.
    train_crop: the side of what training cuts out of its images, where that is not their own size.
    Refused: image shapes that differ, a class name that occurs twice, a queried class without a gallery image, the same
    images as queries and as gallery.
    """
    shapes = {"train": train.images.shape[1:], "query": query.images.shape[1:], "gallery": gallery.images.shape[1:]}
    if train_crop and min(shapes["train"][:2]) < train_crop:
        raise HoldfastError(f"training images of {_shape(shapes['train'])} are smaller than the crop of {train_crop}")
    if train_crop:
        shapes["train"] = (train_crop, train_crop, train.images.shape[3])
    if len({train.holds_vectors, query.holds_vectors, gallery.holds_vectors}) > 1:
        raise HoldfastError("some of train, query and gallery are vectors and some images; read all three alike")
    if train.holds_vectors and len(set(shapes.values())) > 1:
        found = ", ".join(f"{part} {shape[-1]}" for part, shape in shapes.items())
        raise HoldfastError(f"vectors differ in width: {found}; take all three from one embedding model")
    if len(set(shapes.values())) > 1:
        found = ", ".join(f"{part} {_shape(shape)}" for part, shape in shapes.items())
        cropped = " (after its crop)" if train_crop else ""
        raise HoldfastError(f"image shapes differ: {found}{cropped}; read all three with the same size and colour")
    for part, images in (("train", train), ("query", query), ("gallery", gallery)):
        if len(set(images.class_names)) < images.num_classes:
            twice = [name for name in set(images.class_names) if images.class_names.count(name) > 1]
            raise HoldfastError(f"class names of the {part} set occur twice: {_some(twice)}")
    in_gallery = _present(gallery)
    names = tuple(name for name in gallery.class_names if name in in_gallery)
    missing = _present(query) - in_gallery
    if missing:
        raise HoldfastError(f"{len(missing)} queried classes have no gallery image: {_some(missing)}")
    if query.fingerprint == gallery.fingerprint:
        raise HoldfastError("queries and gallery are the same images; every query would find itself")
    trained = _present(train)
    train = _renumbered(train, tuple(name for name in train.class_names if name in trained), "train")
    return OpenSet(train, _renumbered(query, names, "query"), _renumbered(gallery, names, "gallery"))


def _present(images: ImageSet) -> set[str]:
    return {images.class_names[label] for label in np.unique(images.labels)}


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:5]) + (", ..." if len(ordered) > 5 else "")


def _renumbered(images: ImageSet, names: tuple[str, ...], source: str) -> ImageSet:
    if images.class_names == names:
        return images
    labels = renumbering(images.class_names, names)[images.labels]
    return canonical(images.images, labels, names, source=source, names=images.names)


Part = Literal["query", "gallery"]


def half(labels: np.ndarray, part: str, seed: int) -> np.ndarray:
    """Which images are of ``part``: true for half of each label's, rounded up for the gallery.

    So a class with a single image is in the gallery and never queried. Each label draws for itself: which other
    classes there are changes nothing.

    >>> half(np.array([0, 0, 0, 1]), "gallery", seed=0).sum()
    3
    """
    if part not in get_args(Part):
        raise unknown_name("part", part, get_args(Part))
    query = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        drawn = np.random.default_rng([seed, int(label)]).permutation(rows)
        query[drawn[: len(rows) // 2]] = True
    return query if part == "query" else ~query
