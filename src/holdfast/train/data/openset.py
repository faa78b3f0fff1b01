"""Open-set evaluation: training images, and queries and a gallery of other classes."""

import hashlib
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.wording import first_few
from holdfast.train.data.images import ImageSet, canonical_order, label_map

QueryOrGallery = Literal["query", "gallery"]


@dataclass(frozen=True, eq=False)
class OpenSet:
    """Three sets of images of the same shape; ``query`` and ``gallery`` share their class names."""

    train: ImageSet
    query: ImageSet
    gallery: ImageSet

    @property
    def overlap(self) -> tuple[str, ...]:
        """Training classes that are also queried. If there are any, the evaluation is not open-set."""
        queried = _present(self.query)
        return tuple(sorted(name for name in _present(self.train) if name in queried))

    @property
    def fingerprint(self) -> str:
        whole = hashlib.blake2b(digest_size=16)
        for part in (self.train, self.query, self.gallery):
            whole.update(bytes.fromhex(part.fingerprint))
        return whole.hexdigest()


def open_set(train: ImageSet, query: ImageSet, gallery: ImageSet, *, train_crop: int = 0) -> OpenSet:
    """Check three sets and give queries and gallery the same labels, in the order of the gallery's classes.

    train, query, gallery: sets of images of the same shape. Classes without an image are dropped.
    train_crop: side of the crops that training takes from larger training images, in pixels; 0 for none.

    Refused: shapes that differ, duplicate class names, a queried class without a gallery image, and queries that are
    the same images as the gallery.
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
            raise HoldfastError(f"class names of the {part} set occur twice: {first_few(sorted(twice), 5)}")
    in_gallery = _present(gallery)
    names = tuple(name for name in gallery.class_names if name in in_gallery)
    missing = _present(query) - in_gallery
    if missing:
        raise HoldfastError(f"{len(missing)} queried classes have no gallery image: {first_few(sorted(missing), 5)}")
    if query.fingerprint == gallery.fingerprint:
        raise HoldfastError(
            "queries and gallery are the same images, so every query would find itself; read another split as queries"
        )
    trained = _present(train)
    train = _renumbered(train, tuple(name for name in train.class_names if name in trained), "train")
    return OpenSet(train, _renumbered(query, names, "query"), _renumbered(gallery, names, "gallery"))


def _present(images: ImageSet) -> set[str]:
    return {images.class_names[label] for label in np.unique(images.labels)}


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _renumbered(images: ImageSet, names: tuple[str, ...], source: str) -> ImageSet:
    if images.class_names == names:
        return images
    labels = label_map(images.class_names, names)[images.labels]
    order, fingerprint = canonical_order(images.images, labels, names, source=source)
    moved = bool((np.diff(order) < 0).any())  # otherwise pixels stay where they are, which may be on disk
    pixels = images.images[order] if moved else images.images
    return ImageSet(pixels, labels[order].astype(np.int64), names, fingerprint)


def half_of_each_class(labels: np.ndarray, part: str, seed: int) -> np.ndarray:
    """Mask of a random half of each class's images: the queries, or the gallery (rounded up).

    labels: N integers.
    part: "query" or "gallery".
    seed: seed of the split.

    A class with a single image has it in the gallery. The split of a class does not depend on the other classes.

    >>> int(half_of_each_class(np.array([0, 0, 0, 1]), "gallery", seed=0).sum())
    3
    """
    if part not in get_args(QueryOrGallery):
        raise unknown_name("part", part, get_args(QueryOrGallery))
    query = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        drawn = np.random.default_rng([seed, int(label)]).permutation(rows)
        query[drawn[: len(rows) // 2]] = True
    return query if part == "query" else ~query
