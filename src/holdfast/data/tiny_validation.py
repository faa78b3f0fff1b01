"""An open set to choose settings on, so that none is chosen on the test: 20 TinyImageNet classes unlike CIFAR's."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.data.halves import Part, half
from holdfast.data.images import ImageSet, canonical
from holdfast.data.tiny_imagenet import read_at_32
from holdfast.errors import HoldfastError

CLASSES = (
    "n01917289", "n02666196", "n02769748", "n02788148", "n02892201", "n02927161", "n02977058", "n03250847",
    "n03355925", "n03733131", "n03804744", "n03838899", "n03854065", "n04067472", "n04118538", "n04149813",
    "n04254777", "n04540053", "n06596364", "n07615774",
)  # fmt: skip
"""Drawn once: the sorted WITHOUT_COUNTERPART, the first 20 of numpy.random.default_rng(0).permutation, sorted."""

SEED = 0


def tinyimagenet32_validation(root: Path, split: str, *, part: Part, incomplete: bool = False) -> ImageSet:
    """20 classes of tinyimagenet32 with no counterpart in CIFAR-10 or CIFAR-100; half of each is query, half gallery.

    Of the split train that is 5,000 queries and a gallery of 5,000. The halves are drawn in canonical order, so they
    follow the pixels: those of ``tinyimagenet32.npz`` and of ``tiny-imagenet-200`` scaled down are two divisions.
    """
    images = read_at_32(root, split, _validation_classes, incomplete=incomplete)
    chosen = half(images.labels, part, SEED)
    source = f"tinyimagenet32_validation in {root}, {part}"
    return canonical(images.images[chosen], images.labels[chosen], CLASSES, source=source)


def _validation_classes(names: Sequence[str]) -> Sequence[str]:
    missing = sorted(set(CLASSES) - set(names))
    if missing:
        raise HoldfastError(f"tinyimagenet32 lacks {len(missing)} of the 20 validation classes: {missing[0]}, ...")
    return CLASSES
