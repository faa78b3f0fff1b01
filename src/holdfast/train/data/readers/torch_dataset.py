"""Read a map-style torch ``Dataset`` of (image, label) pairs into memory as an ``ImageSet``."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import check_real
from holdfast.embedders.pixels import open_image
from holdfast.train.data.images import ImageSet, canonical_order, numbered_classes

MAX_BYTES = 8 * 2**30
"""The largest set that is read into memory; larger sets need one of the readers."""


def read_dataset(
    dataset: Dataset[Any] | DataLoader[Any],
    *,
    class_names: Sequence[str] | None = None,
    most_bytes: int = MAX_BYTES,
) -> ImageSet:
    """Read every item once, in the dataset's own order (not the canonical one), so that task indices stay valid.

    dataset: items are (image, label). An image is a PIL image, a uint8 array H x W or H x W x C, a uint8 tensor
        C x H x W, or, for vectors, a float array or tensor of D numbers. All must have one shape and type.
        Of a ``DataLoader`` its dataset is read, in the dataset's order, with its worker processes; the loader's
        sampler, batch size and collate function are not used.
    class_names: one name per class; None numbers them.
    most_bytes: larger sets are refused.

    Do not use random transforms: they would be applied only once; ``fit`` augments. Float images are refused, because
    the encoder's preprocess does the scaling.

    >>> import numpy as np
    >>> from holdfast import read_dataset
    >>> dataset = [(np.zeros((8, 8, 3), np.uint8), 0), (np.ones((8, 8, 3), np.uint8), 1)]
    >>> images = read_dataset(dataset, class_names=["dark", "light"])
    >>> images.images.shape, images.labels.tolist()
    ((2, 8, 8, 3), [0, 1])
    """
    loader = dataset if isinstance(dataset, DataLoader) else None
    if isinstance(dataset, DataLoader):
        dataset = dataset.dataset
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise HoldfastError(
            f"{type(dataset).__name__}: only map-style datasets, with __len__ and __getitem__, are read"
        )
    count = len(dataset)
    if count == 0:
        raise HoldfastError(f"{type(dataset).__name__}: no items")
    images: np.ndarray | None = None
    labels = np.empty(count, dtype=np.int64)
    for i, item in enumerate(_items(dataset, loader)):
        pixels, label = _pixels_and_label(item, i, type(dataset).__name__)
        if images is None:
            _refuse_large(count * pixels.nbytes, most_bytes, dataset)
            images = np.empty((count, *pixels.shape), dtype=pixels.dtype)
        if pixels.shape != images.shape[1:] or pixels.dtype != images.dtype:
            found = f"{pixels.dtype} of {pixels.shape}, the first is {images.dtype} of {images.shape[1:]}"
            raise HoldfastError(f"{type(dataset).__name__}: item {i} is {found}; give all of them one size and type")
        images[i], labels[i] = pixels, label
    assert images is not None
    names = class_names or numbered_classes(int(labels.max()), source=type(dataset).__name__)
    _, fingerprint = canonical_order(images, labels, names, source=type(dataset).__name__)
    return ImageSet(images, labels, tuple(names), fingerprint)


def _items(dataset: Dataset[Any], loader: DataLoader[Any] | None) -> Iterator[Any]:
    """The items in the dataset's order, read by as many worker processes as ``loader`` has."""
    if loader is None or loader.num_workers == 0:
        return (dataset[i] for i in range(len(dataset)))  # type: ignore[arg-type]
    return iter(
        DataLoader(
            dataset,
            batch_size=None,
            collate_fn=_unchanged,
            num_workers=loader.num_workers,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
        )
    )


def _unchanged(item: Any) -> Any:
    return item


def _pixels_and_label(item: Any, i: int, kind: str) -> tuple[np.ndarray, int]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise HoldfastError(f"{kind}: item {i} is {type(item).__name__}; it must be a pair (image, label)")
    label = item[1]
    if isinstance(label, torch.Tensor | np.ndarray | np.generic) and np.asarray(label).size == 1:
        label = label.item()
    if not isinstance(label, int) or isinstance(label, bool):
        raise HoldfastError(f"{kind}: the label of item {i} is {label!r}; it must be a whole number")
    return _pixels(item[0], f"{kind}: item {i}"), label


def _pixels(image: Any, where: str) -> np.ndarray:
    """H x W x C uint8, or 1 x 1 x D float32 for a vector."""
    if isinstance(image, Image.Image):
        image = np.asarray(open_image(image, colour="grey" if image.mode == "L" else "rgb"))
    check_real(image, where)
    planar = isinstance(image, torch.Tensor)
    array = image.detach().cpu().numpy() if isinstance(image, torch.Tensor) else np.asarray(image)
    if array.ndim == 1 and array.dtype.kind == "f" and len(array) and np.isfinite(array).all():
        return array.astype(np.float32)[None, None]
    array = array[None] if planar and array.ndim == 2 else array
    array = array.transpose(1, 2, 0) if planar and array.ndim == 3 else array
    array = array[..., None] if array.ndim == 2 else array
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] not in (1, 3):
        found = f"{array.dtype} of shape {np.asarray(image).shape}"
        raise HoldfastError(f"{where} must be uint8 with 1 or 3 channels, or a finite float vector; found {found}")
    return array


def _refuse_large(size: int, most: int, dataset: Dataset[Any]) -> None:
    if size > most:
        raise HoldfastError(
            f"{type(dataset).__name__}: {size / 2**30:.1f} GiB, and at most {most / 2**30:.1f} are read into memory; "
            "write them as a folder or csv and read that, or pass a smaller torch.utils.data.Subset"
        )
