"""Where the files of each dataset are looked for under the data root; the first that is there is read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.data.listing import Listing
from holdfast.data.readers import cub, tiny_imagenet
from holdfast.data.root import data_root

PLACES: dict[str, tuple[str, ...]] = {
    "cifar100": ("cifar100.npz", "cifar-100-python", "cifar-100-python.tar.gz"),
    "cifar10": ("cifar10.npz", "cifar-10-batches-py", "cifar-10-python.tar.gz"),
    "mnist": ("mnist.npz", "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "mnist", "MNIST"),
    "tinyimagenet32": ("tinyimagenet32.npz", tiny_imagenet.FOLDER),
    "tinyimagenet32_validation": ("tinyimagenet32.npz", tiny_imagenet.FOLDER),
    "tinyimagenet200": (tiny_imagenet.FOLDER,),
    "tinyimagenet20": (tiny_imagenet.FOLDER_20,),
    "cub180": (cub.FOLDER,),
    "cub20": (cub.FOLDER,),
    "imagenet32": ("imagenet32",),
    "casia_webface": ("CASIA-WebFace",),
    "celeba": ("celeba",),
}

COUNTED: dict[str, Callable[..., Listing]] = {
    "tinyimagenet200": tiny_imagenet.files_200,
    "tinyimagenet20": tiny_imagenet.files_20,
    "cub180": cub.files_180,
    "cub20": cub.files_20,
}
"""Sets of picture files whose number is known: what each reads, listed and counted without decoding any."""


def refuse_miscounted(section: Mapping[str, Any], root: Path | None) -> None:
    """Refuse what the set that a recipe's section names would refuse to decode, without decoding anything."""
    count = COUNTED.get(section["name"])
    if count is not None:
        count(data_root(root), section["split"], section["path"], section["incomplete"])


def found(root: Path, name: str) -> Path | None:
    """The file or folder that ``name`` would be read from, or None."""
    return next((root / place for place in PLACES[name] if (root / place).exists()), None)
