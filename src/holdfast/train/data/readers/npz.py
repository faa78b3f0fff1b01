"""Packs: an ``.npz`` file with arrays ``<split>_x`` and ``<split>_y`` for each split, and optional ``class_names``."""

from pathlib import Path

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.untrusted_files import open_npz
from holdfast.core.wording import first_few
from holdfast.train.data.images import ImageSet, canonical, first_rows_per_class, numbered_classes
from holdfast.train.data.root import resolve_path


def npz(root: Path, split: str, *, path: str) -> ImageSet:
    """One split of the pack at ``path`` (absolute, or relative to the data root)."""
    return read_pack(resolve_path(root, path), split)


def read_pack(file: Path, split: str, images_per_class: int | None = None) -> ImageSet:
    """Read one split of a pack.

    images_per_class: keep the first so many images of each class, in file order; None keeps all.

    Without ``class_names`` classes are named by their numbers, up to the largest label of all splits, so that the
    splits share their classes.
    """
    if not file.is_file():
        raise HoldfastError(f"{file}: no such file; looked for a pack with {split}_x, {split}_y and class_names")
    with open_npz(file) as pack:
        splits = [key.removesuffix("_x") for key in pack.names if key.endswith("_x")]
        if not splits:
            found = first_few(sorted(pack.names), 5) or "nothing"
            raise HoldfastError(f"{file}: no pack of images; it needs {split}_x and {split}_y, and has {found}")
        if split not in splits:
            raise unknown_name(f"split of {file}", split, splits)
        for label_key in (f"{name}_y" for name in splits):
            if label_key not in pack.names:
                raise HoldfastError(f"{file}: {label_key.removesuffix('_y')}_x has no {label_key}; add the labels")
        all_labels = {name: pack.array(f"{name}_y") for name in splits}
        named = "class_names" in pack.names
        names = _class_names(pack.array("class_names"), file) if named else _numbers(all_labels, file)
        images, labels = pack.array(f"{split}_x"), all_labels[split]
    if images_per_class is not None and labels.ndim == 1 and images.ndim and len(images) == len(labels):
        kept = first_rows_per_class(labels, images_per_class)
        images, labels = images[kept], labels[kept]
    return canonical(images, labels, names, source=f"{file}, split {split}")


def _class_names(names: np.ndarray, file: Path) -> list[str]:
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise HoldfastError(
            f"{file}: class_names must be one row of strings, found {names.dtype} of shape {names.shape}"
        )
    return [name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in names.tolist()]


def _numbers(labels: dict[str, np.ndarray], file: Path) -> list[str]:
    """One name per label up to the largest. Labels that are not integers are skipped; ``canonical`` refuses them."""
    largest = max((int(y.max()) for y in labels.values() if y.dtype.kind in "iu" and y.size), default=-1)
    return numbered_classes(largest, source=str(file))
