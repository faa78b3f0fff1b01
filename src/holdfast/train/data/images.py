"""``ImageSet``: images and labels as arrays in canonical order. Every reader returns one."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import check_real, real_array


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size with their classes, in canonical order.

    images: uint8, N x H x W x C with C = 1 (grey) or 3 (RGB). Vectors are images of one pixel: float32, N x 1 x 1 x D.
    labels: int64, N; indices into ``class_names``.
    class_names: one name per class, in label order.
    fingerprint: hash of pixels and labels in canonical order; it does not depend on the file format.

    >>> from holdfast import load_split
    >>> images = load_split("glyphs", "train", train_classes=3, test_classes=2, per_class_train=4)
    >>> images.images.shape, images.labels.tolist(), len(images.class_names)
    ((12, 28, 28, 1), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], 3)
    """

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    fingerprint: str

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def holds_vectors(self) -> bool:
        return self.images.dtype == np.float32


def canonical(
    images: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    *,
    source: str,
) -> ImageSet:
    """Check raw arrays and sort them into canonical order: by class, then by a hash of the pixels.

    The order of files or rows in the source then has no influence: a seed gives the same buffer and the same batches.

    images: uint8 N x H x W or N x H x W x C, or float32 N x 1 x 1 x D.
    labels: N integers, indices into ``class_names``.
    class_names: one name per class.
    source: name of the data in errors.
    """
    check_real(images, f"{source}: images")
    images = np.ascontiguousarray(images)
    if images.ndim == 3:
        images = images[..., None]
    labels = real_array(labels, f"{source}: labels")
    order, fingerprint = canonical_order(images, labels, class_names, source=source)
    labels = labels.astype(np.int64)[order]
    return ImageSet(images[order], labels, tuple(str(name) for name in class_names), fingerprint)


def canonical_order(
    images: np.ndarray, labels: np.ndarray, class_names: Sequence[str], *, source: str
) -> tuple[np.ndarray, str]:
    """The row of each image in canonical order, and the fingerprint. Each image is read once."""
    vectors = images.dtype == np.float32 and images.shape[1:3] == (1, 1)
    if images.ndim != 4 or not (vectors or (images.dtype == np.uint8 and images.shape[-1] in (1, 3))):
        raise HoldfastError(
            f"{source}: images must be uint8 of shape N x H x W x 1 or 3, found {images.dtype} of shape {images.shape}"
        )
    labels = np.asarray(labels)
    if len(labels) != len(images) or labels.ndim != 1:
        raise HoldfastError(f"{source}: {len(images)} images but labels of shape {labels.shape}")
    if len(images) == 0:
        raise HoldfastError(f"{source}: no images")
    if not np.issubdtype(labels.dtype, np.integer):
        raise HoldfastError(f"{source}: labels must be integers, found {labels.dtype}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(class_names):
        raise HoldfastError(
            f"{source}: labels must be in 0..{len(class_names) - 1} ({len(class_names)} classes), found {low}..{high}"
        )
    labels = labels.astype(np.int64)
    digests = b"".join(hashlib.blake2b(image, digest_size=16).digest() for image in images)
    # Two big-endian words sort like the bytes of a digest, and numpy sorts all rows at once.
    words = np.frombuffer(digests, ">u8").reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0], labels))
    rows = np.column_stack([labels.astype("<i8").view(np.uint8).reshape(-1, 8), words.view(np.uint8).reshape(-1, 16)])
    whole = hashlib.blake2b(repr(images.shape[1:]).encode(), digest_size=16)
    whole.update(rows[order].tobytes())
    return order, whole.hexdigest()


def only_classes(images: ImageSet, names: Sequence[str]) -> ImageSet:
    """The images of the classes ``names``, labelled in that order. All of these classes must be in the set."""
    if tuple(names) == images.class_names:
        return images
    labels = label_map(images.class_names, names)[images.labels]
    kept = labels >= 0
    return canonical(images.images[kept], labels[kept], names, source="subset")


def label_map(class_names: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """For each of ``class_names`` its index in ``names``, or -1."""
    label_of = {name: label for label, name in enumerate(names)}
    return np.array([label_of.get(name, -1) for name in class_names])


MOST_NUMBERED = 2**22
"""Classes that are named by their numbers, at most. More take gigabytes for names that most of them do not need."""


def numbered_classes(largest: int, *, source: str) -> list[str]:
    """Names of classes that are only numbers: "0" to ``largest``. Labels that are large identifiers are refused."""
    if largest >= MOST_NUMBERED:
        raise HoldfastError(
            f"{source}: the largest label is {largest}, and every number up to it would be a class; number the classes "
            "0, 1, 2, ..., for example with numpy.unique(labels, return_inverse=True)"
        )
    return [str(label) for label in range(largest + 1)]


def first_classes(class_names: Sequence[str], count: int | None) -> Sequence[str]:
    """The first ``count`` classes, or all for None. Such sets are nested, and a class has the same label in each."""
    if count is not None and not 1 <= count <= len(class_names):
        raise HoldfastError(f"classes must be in 1..{len(class_names)}, got {count}")
    return class_names[:count]


def first_rows_per_class(labels: np.ndarray, count: int) -> np.ndarray:
    """Mask of the rows that are among the first ``count`` of their class, in the given order: N booleans.

    >>> first_rows_per_class(np.array([5, 5, 7, 5, 7]), 2).tolist()
    [True, True, True, False, True]
    """
    if count < 1:
        raise HoldfastError(f"images_per_class must be at least 1, got {count}")
    order = np.argsort(labels, kind="stable")
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels)) - np.searchsorted(labels[order], labels[order])
    return rank < count


def first_per_class(images: ImageSet, count: int) -> ImageSet:
    """At most ``count`` images of each class: the first in canonical order, which is effectively random."""
    if count < 1:
        raise HoldfastError(f"per_class must be at least 1, got {count}")
    starts = np.searchsorted(images.labels, images.labels)
    kept = np.arange(len(images)) - starts < count
    return canonical(
        images.images[kept],
        images.labels[kept],
        images.class_names,
        source="subset",
    )
