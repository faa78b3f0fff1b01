"""The 20 ImageNet classes outside TinyImageNet that the paper evaluates on, and a validation set of 20 classes."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.train.data import ImageSet
from holdfast.train.data.cache import read_listing
from holdfast.train.data.images import canonical
from holdfast.train.data.listing import FileListing, check_complete, list_class_folders
from holdfast.train.data.openset import QueryOrGallery, half_of_each_class
from holdfast.train.data.readers.tiny_imagenet import read_at_32
from holdfast.train.data.root import require_in_folder, resolve_path

FOLDER_20 = "tiny-imagenet-20"
WNIDS_20 = (
    "n04116512", "n03447721", "n11939491", "n02951585", "n02437616", "n03538406", "n02095889", "n02169497",
    "n03127925", "n01532829", "n03394916", "n02727426", "n09835506", "n02105641", "n03598930", "n04228054",
    "n03743016", "n01582220", "n04485082", "n03483316",
)  # fmt: skip
"""The test classes of the paper's appendix C, in its order; none is among TinyImageNet's 200."""

IMAGES_20 = {"train": 25_478, "val": 1_000}
PER_CLASS_20 = {"train": None, "val": 50}


def tinyimagenet20(
    root: Path, split: str, *, path: str = FOLDER_20, size: int = 64, incomplete: bool = False
) -> ImageSet:
    """The paper's 20 ImageNet classes outside TinyImageNet; splits train (queries) and val (gallery).

    path: folder with ``train/WNID`` and ``val/WNID``, in the data root. It may be all of ImageNet.
    size: side of the square images, in pixels.
    incomplete: accept missing images.
    """
    return read_listing(list_files_20(root, split, path, incomplete), root, name=f"tinyimagenet20-{split}", size=size)


def list_files_20(root: Path, split: str, path: str = FOLDER_20, incomplete: bool = False) -> FileListing:
    """The files that ``tinyimagenet20`` reads; their number is checked."""
    if split not in IMAGES_20:
        raise unknown_name("split of tinyimagenet20", split, IMAGES_20)
    top = resolve_path(root, path)
    if not (top / split).is_dir():
        expected = (
            "the paper's 20 ImageNet classes, or all, are expected there as train/WNID and val/WNID (docs/data.md)"
        )
        require_in_folder(top, f"{split}/{WNIDS_20[0]}", expected)
    listing = list_class_folders(top / split, WNIDS_20)
    check_complete(
        listing,
        images=IMAGES_20[split],
        classes=len(WNIDS_20),
        incomplete=incomplete,
        per_class=PER_CLASS_20[split],
    )
    return listing


VALIDATION_CLASSES = (
    "n01917289", "n02666196", "n02769748", "n02788148", "n02892201", "n02927161", "n02977058", "n03250847",
    "n03355925", "n03733131", "n03804744", "n03838899", "n03854065", "n04067472", "n04118538", "n04149813",
    "n04254777", "n04540053", "n06596364", "n07615774",
)  # fmt: skip
"""The first 20 of numpy.random.default_rng(0).permutation of the sorted classes without a counterpart, sorted."""

VALIDATION_SEED = 0


def tinyimagenet32_validation(root: Path, split: str, *, part: QueryOrGallery, incomplete: bool = False) -> ImageSet:
    """20 classes of tinyimagenet32 without a counterpart in CIFAR-10 or CIFAR-100, to choose settings on.

    part: "query" or "gallery", a random half of each class: 5,000 images each in the split train.
    incomplete: accept missing images.

    The halves are drawn in canonical order, which depends on the pixels: ``tinyimagenet32.npz`` and
    ``tiny-imagenet-200`` scaled down give different halves.
    """
    images = read_at_32(root, split, _validation_classes, incomplete=incomplete)
    chosen = half_of_each_class(images.labels, part, VALIDATION_SEED)
    source = f"tinyimagenet32_validation in {root}, {part}"
    return canonical(images.images[chosen], images.labels[chosen], VALIDATION_CLASSES, source=source)


def _validation_classes(names: Sequence[str]) -> Sequence[str]:
    missing = sorted(set(VALIDATION_CLASSES) - set(names))
    if missing:
        raise HoldfastError(f"tinyimagenet32 lacks {len(missing)} of the 20 validation classes: {missing[0]}, ...")
    return VALIDATION_CLASSES
