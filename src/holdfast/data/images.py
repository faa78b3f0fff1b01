"""Images and labels as arrays: what every reader yields and everything else takes."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.errors import HoldfastError


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size with their classes, in canonical order.

    images: uint8, N x H x W x C with C = 1 (grey) or 3 (RGB). Vectors are images of one pixel: float32, N x 1 x 1 x D.
    labels: int64, N; an index into ``class_names``.
    class_names: one name per class, in label order.
    fingerprint: a hash of pixels and labels in canonical order, the same in whatever form the data came.
    names: what each image is called where it came from (a path), or None; no part of the fingerprint.
    """

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    fingerprint: str
    names: np.ndarray | None = None

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
    names: Sequence[str] | np.ndarray | None = None,
) -> ImageSet:
    """Check raw arrays and put them in canonical order: by class, then by a hash of the pixels.

    The order of files on a disk or of rows in an archive then has no influence: a seed means the same buffer and the
    same batches in whatever form the data came. ``source`` names the data in errors.
    """
    images = np.ascontiguousarray(images)
    if images.ndim == 3:
        images = images[..., None]
    order, fingerprint = canonical_order(images, labels, class_names, source=source)
    labels = np.asarray(labels).astype(np.int64)[order]
    ordered = None if names is None else np.asarray(names)[order]
    return ImageSet(images[order], labels, tuple(str(name) for name in class_names), fingerprint, ordered)


def canonical_order(
    images: np.ndarray, labels: np.ndarray, class_names: Sequence[str], *, source: str
) -> tuple[np.ndarray, str]:
    """Where each place of the canonical order takes its image from, and the fingerprint; reads each image once."""
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
            f"{source}: labels must lie in 0..{len(class_names) - 1} ({len(class_names)} classes), found {low}..{high}"
        )
    labels = labels.astype(np.int64)
    digests = b"".join(hashlib.blake2b(image, digest_size=16).digest() for image in images)
    # As two big-endian words a digest sorts like its bytes, and numpy sorts all rows at once.
    words = np.frombuffer(digests, ">u8").reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0], labels))
    rows = np.column_stack([labels.astype("<i8").view(np.uint8).reshape(-1, 8), words.view(np.uint8).reshape(-1, 16)])
    whole = hashlib.blake2b(repr(images.shape[1:]).encode(), digest_size=16)
    whole.update(rows[order].tobytes())
    return order, whole.hexdigest()


def only_classes(images: ImageSet, names: Sequence[str]) -> ImageSet:
    """The images of the classes ``names``, numbered in that order; all of them must be in the set."""
    if tuple(names) == images.class_names:
        return images
    labels = renumbering(images.class_names, names)[images.labels]
    kept = labels >= 0
    return canonical(images.images[kept], labels[kept], names, source="subset", names=_kept(images, kept))


def renumbering(class_names: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """For each of ``class_names`` its place in ``names``, or -1."""
    place = {name: label for label, name in enumerate(names)}
    return np.array([place.get(name, -1) for name in class_names])


def first_names(class_names: Sequence[str], count: int | None) -> Sequence[str]:
    """The first ``count`` classes, None for all; such sets are nested, and a class has the same label in each."""
    if count is not None and not 1 <= count <= len(class_names):
        raise HoldfastError(f"classes must lie in 1..{len(class_names)}, got {count}")
    return class_names[:count]


def first_in_file(labels: np.ndarray, count: int) -> np.ndarray:
    """Which rows are among the first ``count`` of their class in the order given: N booleans.

    >>> first_in_file(np.array([5, 5, 7, 5, 7]), 2).tolist()
    [True, True, True, False, True]
    """
    if count < 1:
        raise HoldfastError(f"images_per_class must be at least 1, got {count}")
    order = np.argsort(labels, kind="stable")
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels)) - np.searchsorted(labels[order], labels[order])
    return rank < count


def first_per_class(images: ImageSet, count: int) -> ImageSet:
    """At most ``count`` images of each class: the first in canonical order, which is as good as random."""
    if count < 1:
        raise HoldfastError(f"per_class must be at least 1, got {count}")
    starts = np.searchsorted(images.labels, images.labels)
    kept = np.arange(len(images)) - starts < count
    return canonical(
        images.images[kept], images.labels[kept], images.class_names, source="subset", names=_kept(images, kept)
    )


def image_names(images: ImageSet) -> np.ndarray:
    """What each image is called, N strings: its path where it was read from files, else a hash of its pixels."""
    if images.names is not None:
        return images.names
    return np.array([hashlib.blake2b(one.tobytes(), digest_size=16).hexdigest() for one in images.images])


def _kept(images: ImageSet, kept: np.ndarray) -> np.ndarray | None:
    return None if images.names is None else images.names[kept]
