"""MNIST, from a pack (npz), Keras' ``mnist.npz``, or the four idx files, gzipped or not."""

import gzip
import zlib
from pathlib import Path

import numpy as np

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.untrusted_files import open_npz
from holdfast.train.data.images import ImageSet, canonical
from holdfast.train.data.readers.npz import read_pack
from holdfast.train.data.root import require_data_root

_FILES = {"train": "train", "test": "t10k"}
_FOLDERS = (".", "mnist", "MNIST", "MNIST/raw")  # the last is torchvision's
_CLASSES = [str(digit) for digit in range(10)]


def mnist(root: Path, split: str) -> ImageSet:
    """Handwritten digits, 28 x 28 grey, from ``mnist.npz`` or idx files; splits train and test."""
    pack = require_data_root(root, "mnist.npz", "the idx files") / "mnist.npz"
    if pack.is_file():
        return _from_npz(pack, split)
    if split not in _FILES:
        raise unknown_name("split of mnist", split, _FILES)
    for folder in _FOLDERS:
        images = _found(root / folder, f"{_FILES[split]}-images-idx3-ubyte")
        labels = _found(root / folder, f"{_FILES[split]}-labels-idx1-ubyte")
        if images and labels:
            return canonical(read_idx(images), read_idx(labels), _CLASSES, source=f"{images}")
    raise HoldfastError(
        f"{pack}: no such file, and no {_FILES[split]}-images-idx3-ubyte (or .gz) with its labels in {root} either"
    )


def read_idx(file: Path) -> np.ndarray:
    """Read an idx file of bytes: two zeros, type 8, number of dimensions, their sizes (big-endian), the bytes."""
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise HoldfastError(f"{file}: not readable ({error})") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise HoldfastError(f"{file}: not an idx file of bytes")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    if len(content) - start != int(np.prod(shape)):
        raise HoldfastError(
            f"{file}: its header says {'x'.join(map(str, shape))} bytes, but it has {len(content) - start}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _from_npz(pack: Path, split: str) -> ImageSet:
    """A pack, or Keras' file with the arrays x_train, y_train, x_test and y_test."""
    x, y = f"x_{split}", f"y_{split}"
    with open_npz(pack) as file:
        arrays = (file.array(x), file.array(y)) if {x, y} <= set(file.names) else None
    if arrays is None:
        return read_pack(pack, split)
    return canonical(*arrays, _CLASSES, source=f"{pack}, split {split}")


def _found(folder: Path, name: str) -> Path | None:
    # Some copies have a dot before idx.
    for candidate in (name, f"{name}.gz", name.replace("-idx", ".idx"), f"{name.replace('-idx', '.idx')}.gz"):
        if (folder / candidate).is_file():
            return folder / candidate
    return None
