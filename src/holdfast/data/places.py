"""Where the files of each dataset are looked for under the data root; the first that is there is read."""

from pathlib import Path

from holdfast.data import cub, tiny_imagenet

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


def found(root: Path, name: str) -> Path | None:
    """The file or folder that ``name`` would be read from, or None."""
    return next((root / place for place in PLACES[name] if (root / place).exists()), None)
