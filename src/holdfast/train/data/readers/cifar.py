"""CIFAR-10 and CIFAR-100, from a pack (npz), the official archive, or the unpacked archive."""

import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.untrusted_files import open_regular
from holdfast.train.data.images import ImageSet, canonical, first_rows_per_class
from holdfast.train.data.readers.npz import read_pack
from holdfast.train.data.readers.plain_pickle import load_plain, whole_numbers, with_text_keys
from holdfast.train.data.root import require_data_root


@dataclass(frozen=True)
class _Layout:
    """Names of the official files of one dataset, and the keys in them."""

    name: str
    archive: str
    folder: str
    parts: dict[str, tuple[str, ...]]
    labels: str
    names_file: str
    names: str


_CIFAR10 = _Layout(
    name="cifar10",
    archive="cifar-10-python.tar.gz",
    folder="cifar-10-batches-py",
    parts={"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
    labels="labels",
    names_file="batches.meta",
    names="label_names",
)
_CIFAR100 = _Layout(
    name="cifar100",
    archive="cifar-100-python.tar.gz",
    folder="cifar-100-python",
    parts={"train": ("train",), "test": ("test",)},
    labels="fine_labels",
    names_file="meta",
    names="fine_label_names",
)


def cifar10(root: Path, split: str) -> ImageSet:
    """CIFAR-10: 32 x 32 RGB, 10 classes; splits train and test."""
    return _read(root, split, _CIFAR10)


def cifar100(root: Path, split: str, *, images_per_class: int | None = None) -> ImageSet:
    """CIFAR-100 with its 100 fine classes: 32 x 32 RGB; splits train and test.

    images_per_class: keep the first so many of each class, in file order; 300 is the paper's CIFAR100R. None keeps all.
    """
    return _read(root, split, _CIFAR100, images_per_class)


def _read(root: Path, split: str, layout: _Layout, images_per_class: int | None = None) -> ImageSet:
    """Read the first form that exists: pack, folder, archive (the slowest)."""
    forms = (f"{layout.name}.npz", layout.folder, layout.archive)
    pack, folder, archive = (require_data_root(root, *forms) / name for name in forms)
    if pack.is_file():
        return read_pack(pack, split, images_per_class)
    if split not in layout.parts:
        raise unknown_name(f"split of {layout.name}", split, layout.parts)
    if folder.is_dir():
        return _assemble(lambda name: _from_folder(folder / name), split, layout, str(folder), images_per_class)
    if archive.is_file():
        try:
            with tarfile.open(archive, "r:gz") as tar:
                return _assemble(
                    lambda name: _from_archive(tar, archive, f"{layout.folder}/{name}"),
                    split,
                    layout,
                    str(archive),
                    images_per_class,
                )
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise HoldfastError(f"{archive}: not readable as tar.gz, perhaps truncated ({error})") from error
    raise HoldfastError(
        f"{layout.name} not found: looked for {pack.name}, {folder.name}/ and {archive.name} in {root.absolute()}"
    )


def _from_folder(file: Path) -> dict[str, Any]:
    with open_regular(file) as stream:
        return with_text_keys(load_plain(stream, str(file)), str(file))


def _from_archive(tar: tarfile.TarFile, archive: Path, member: str) -> dict[str, Any]:
    """Read one member by its exact name, without writing to disk."""
    source = f"{archive}: {member}"
    try:
        info = tar.getmember(member)
    except KeyError:
        raise HoldfastError(f"{source} is missing from the archive") from None
    stream = tar.extractfile(info) if info.isreg() else None
    if stream is None:
        raise HoldfastError(f"{source} is not a plain file")
    return with_text_keys(load_plain(stream, source), source)  # type: ignore[arg-type]


def _assemble(
    read: Callable[[str], dict[str, Any]], split: str, layout: _Layout, source: str, images_per_class: int | None
) -> ImageSet:
    images, labels = [], []
    for part in layout.parts[split]:
        batch, where = read(part), f"{source}: {part}"
        pixels = _entry(batch, "data", where)
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3072,):
            raise HoldfastError(f"{where}: data must be rows of 3072 bytes")
        images.append(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels += whole_numbers(_entry(batch, layout.labels, where), f"{where}: {layout.labels}")
    where = f"{source}: {layout.names_file}"
    names = _entry(read(layout.names_file), layout.names, where)
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise HoldfastError(f"{where}: {layout.names} must be a list of names")
    decoded = [name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in names]
    pixels, classes = np.concatenate(images), np.asarray(labels)
    if images_per_class is not None:
        kept = first_rows_per_class(classes, images_per_class)
        pixels, classes = pixels[kept], classes[kept]
    return canonical(pixels, classes, decoded, source=f"{source}, split {split}")


def _entry(batch: dict[str, Any], key: str, where: str) -> Any:
    if key not in batch:
        raise unknown_name(f"key of {where}:", key, batch)
    return batch[key]
