"""ImageNet32: ImageNet at 32 x 32, in the batches of its distribution."""

from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.untrusted_files import open_npz, open_regular
from holdfast.train.data.images import ImageSet, canonical
from holdfast.train.data.listing import INCOMPLETE_ADVICE
from holdfast.train.data.readers.plain_pickle import load_plain, whole_numbers, with_text_keys
from holdfast.train.data.root import resolve_path

CLASSES = 1000
IMAGES = {"train": 1_281_167, "val": 50_000}
BATCHES = {"train": tuple(f"train_data_batch_{number}" for number in range(1, 11)), "val": ("val_data",)}


def imagenet32(
    root: Path, split: str, *, path: str = "imagenet32", classes: int | None = None, incomplete: bool = False
) -> ImageSet:
    """ImageNet at 32 x 32 from its pickled or npz batches; splits train and val.

    path: folder of the batches, in the data root.
    classes: the first so many of the 1000 classes, in the dataset's order; None for all. Such sets are nested, and
        only their images are kept in memory. Classes are named by their number, 1 to 1000.
    incomplete: accept missing batches.
    """
    if split not in BATCHES:
        raise unknown_name("split of imagenet32", split, BATCHES)
    if classes is not None and not 1 <= classes <= CLASSES:
        raise HoldfastError(f"classes must be in 1..{CLASSES}, got {classes}")
    top = resolve_path(root, path)
    if not top.is_dir():
        raise HoldfastError(f"{top}: no such folder; ImageNet32 is expected there, its batches unpacked")
    count = classes or CLASSES
    images, labels, total, missing = [], [], 0, []
    for name in BATCHES[split]:
        file = _find(top, split, name)
        if file is None:
            missing.append(name)
            continue
        pixels, numbers = _read(file)
        total += len(numbers)
        kept = numbers <= count
        images.append(pixels[kept].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(numbers[kept] - 1)
    if total != IMAGES[split] and not (incomplete and total):
        without = f" (no {', '.join(missing)})" if missing else ""
        advice = INCOMPLETE_ADVICE if total else ""
        raise HoldfastError(f"{top}: {total:,} images where {IMAGES[split]:,} are expected{without}{advice}")
    names = [f"imagenet32-{number}" for number in range(1, count + 1)]
    return canonical(np.concatenate(images), np.concatenate(labels), names, source=f"{top}, split {split}")


def _find(top: Path, split: str, name: str) -> Path | None:
    """The file of a batch: in the folder itself or in the folder of its archive, as a pickle or as npz."""
    for folder in (top, top / f"Imagenet32_{split}", top / f"Imagenet32_{split}_npz"):
        for file in (folder / name, folder / f"{name}.npz"):
            if file.is_file():
                return file
    return None


def _read(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 3072 bytes and the labels 1..1000 of one batch."""
    batch = _npz(file) if file.suffix == ".npz" else _pickle(file)
    for key in ("data", "labels"):
        if key not in batch:
            raise unknown_name(f"key of {file}:", key, batch)
    pixels, labels = batch["data"], np.asarray(whole_numbers(batch["labels"], f"{file}: labels"))
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3072,):
        raise HoldfastError(f"{file}: data must be rows of 3072 bytes")
    if labels.shape != (len(pixels),) or labels.dtype.kind not in "iu":
        raise HoldfastError(f"{file}: labels must be {len(pixels)} whole numbers, found {labels.dtype} {labels.shape}")
    if len(labels) and not (labels.min() >= 1 and labels.max() <= CLASSES):
        raise HoldfastError(f"{file}: labels must be in 1..{CLASSES}, found {labels.min()}..{labels.max()}")
    return pixels, labels.astype(np.int64)


def _npz(file: Path) -> dict[str, Any]:
    with open_npz(file) as arrays:
        return {key: arrays.array(key) for key in ("data", "labels") if key in arrays.names}


def _pickle(file: Path) -> dict[str, Any]:
    with open_regular(file) as stream:
        return with_text_keys(load_plain(stream, str(file)), str(file))
