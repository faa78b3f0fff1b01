"""TinyImageNet as downloaded, and the 20 further ImageNet classes that the paper tests it on.

An open set to choose settings on, so that none is chosen on the test: 20 TinyImageNet classes unlike CIFAR's.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.data.cache import read_listing
from holdfast.data.images import ImageSet, canonical, first_names, only_classes
from holdfast.data.listing import Listing, class_folders, listed_if_there, refuse_if_incomplete, rows
from holdfast.data.openset import Part, half
from holdfast.data.readers.npz import read_pack
from holdfast.data.root import existing, located, refuse_if_absent
from holdfast.errors import HoldfastError, unknown_name

FOLDER = "tiny-imagenet-200"
CLASSES, IMAGES = 200, {"train": 100_000, "val": 10_000}

FOLDER_20 = "tiny-imagenet-20"
WNIDS_20 = (
    "n04116512", "n03447721", "n11939491", "n02951585", "n02437616", "n03538406", "n02095889", "n02169497",
    "n03127925", "n01532829", "n03394916", "n02727426", "n09835506", "n02105641", "n03598930", "n04228054",
    "n03743016", "n01582220", "n04485082", "n03483316",
)  # fmt: skip
"""The test classes of the paper's appendix C, in its order; none is among TinyImageNet's 200."""

IMAGES_20 = {"train": 25_478, "val": 1_000}
PER_CLASS_20 = {"train": None, "val": 50}


def tinyimagenet200(
    root: Path, split: str, *, path: str = FOLDER, size: int = 64, incomplete: bool = False
) -> ImageSet:
    """TinyImageNet's 200 classes at 64 x 64, from the folders of ``tiny-imagenet-200``; splits train and val."""
    return read_listing(files_200(root, split, path, incomplete), root, name=f"tinyimagenet200-{split}", size=size)


def tinyimagenet20(
    root: Path, split: str, *, path: str = FOLDER_20, size: int = 64, incomplete: bool = False
) -> ImageSet:
    """The paper's 20 ImageNet classes outside TinyImageNet, from ``train/WNID`` (queries) and ``val/WNID`` (gallery).

    ``path`` may be all of ImageNet in that layout: the other classes are passed over.
    """
    return read_listing(files_20(root, split, path, incomplete), root, name=f"tinyimagenet20-{split}", size=size)


def files_20(root: Path, split: str, path: str = FOLDER_20, incomplete: bool = False) -> Listing:
    """What ``tinyimagenet20`` reads, counted."""
    if split not in IMAGES_20:
        raise unknown_name("split of tinyimagenet20", split, IMAGES_20)
    top = located(root, path)
    if not (top / split).is_dir():
        expected = (
            "the paper's 20 ImageNet classes, or all, are expected there as train/WNID and val/WNID (docs/data.md)"
        )
        refuse_if_absent(top, f"{split}/{WNIDS_20[0]}", expected)
    listing = class_folders(top / split, WNIDS_20)
    refuse_if_incomplete(
        listing,
        images=IMAGES_20[split],
        classes=len(WNIDS_20),
        incomplete=incomplete,
        per_class=PER_CLASS_20[split],
    )
    return listing


def tinyimagenet32(root: Path, split: str, *, classes: int | None = None, incomplete: bool = False) -> ImageSet:
    """TinyImageNet at 32 x 32, from ``tinyimagenet32.npz`` or ``tiny-imagenet-200``; the first ``classes`` of 200.

    The classes come in the order of ``wnids.txt``, so that smaller sets are part of larger ones. A pack has no count
    to be held to: it is taken as it is.
    """
    return read_at_32(root, split, lambda names: first_names(names, classes), incomplete=incomplete)


def read_at_32(
    root: Path, split: str, choose: Callable[[Sequence[str]], Sequence[str]], *, incomplete: bool
) -> ImageSet:
    """The classes that ``choose`` takes out of all there are; from folders no other picture is decoded."""
    pack, folder = existing(root, "tinyimagenet32.npz", FOLDER) / "tinyimagenet32.npz", root / FOLDER
    if pack.is_file():
        images = read_pack(pack, split)
        return only_classes(images, choose(images.class_names))
    if not folder.is_dir():
        raise HoldfastError(f"tinyimagenet32 not found: looked for {pack.name} and {FOLDER}/ in {root.absolute()}")
    listing = files_200(root, split, FOLDER, incomplete)
    chosen = listing.only_classes(choose(listing.class_names))
    return read_listing(chosen, root, name=f"tinyimagenet32-{split}", size=32)


def files_200(root: Path, split: str, path: str = FOLDER, incomplete: bool = False) -> Listing:
    """What ``tinyimagenet200`` reads, counted."""
    if split not in IMAGES:
        raise unknown_name("split of TinyImageNet", split, IMAGES)
    top = located(root, path)
    refuse_if_absent(top, "wnids.txt", "TinyImageNet is expected there as it is downloaded")
    wnids = [row[0] for row in rows(top / "wnids.txt", 1)]
    listing = _training(top / "train", wnids) if split == "train" else _validation(top / "val", wnids)
    refuse_if_incomplete(listing, images=IMAGES[split], classes=CLASSES, incomplete=incomplete)
    return listing


def _training(top: Path, wnids: list[str]) -> Listing:
    """A folder per class; the file of boxes beside the images names all of them, so that one knows which are gone."""
    listing = class_folders(top, wnids)
    if len(listing) == IMAGES["train"]:
        return listing
    there = {file.name for file in listing.files}
    boxes = [top / wnid / f"{wnid}_boxes.txt" for wnid in wnids]
    named = [row[0] for file in boxes if file.is_file() for row in rows(file, 1)]
    return replace(listing, missing=tuple(name for name in named if name not in there))


def _validation(top: Path, wnids: list[str]) -> Listing:
    """All images lie in one folder; a file says which class each is of."""
    label = {wnid: number for number, wnid in enumerate(wnids)}
    annotations = top / "val_annotations.txt"
    named = []
    for file, wnid in rows(annotations, 2):
        if wnid not in label:
            raise HoldfastError(f"{annotations}: {file} is of {wnid}, which wnids.txt does not name")
        named.append((f"images/{file}", label[wnid]))
    return listed_if_there(top, named, wnids)


VALIDATION_CLASSES = (
    "n01917289", "n02666196", "n02769748", "n02788148", "n02892201", "n02927161", "n02977058", "n03250847",
    "n03355925", "n03733131", "n03804744", "n03838899", "n03854065", "n04067472", "n04118538", "n04149813",
    "n04254777", "n04540053", "n06596364", "n07615774",
)  # fmt: skip
"""Drawn once: the sorted WITHOUT_COUNTERPART, the first 20 of numpy.random.default_rng(0).permutation, sorted."""

VALIDATION_SEED = 0


def tinyimagenet32_validation(root: Path, split: str, *, part: Part, incomplete: bool = False) -> ImageSet:
    """20 classes of tinyimagenet32 with no counterpart in CIFAR-10 or CIFAR-100; half of each is query, half gallery.

    Of the split train that is 5,000 queries and a gallery of 5,000. The halves are drawn in canonical order, so they
    follow the pixels: those of ``tinyimagenet32.npz`` and of ``tiny-imagenet-200`` scaled down are two divisions.
    """
    images = read_at_32(root, split, _validation_classes, incomplete=incomplete)
    chosen = half(images.labels, part, VALIDATION_SEED)
    source = f"tinyimagenet32_validation in {root}, {part}"
    return canonical(images.images[chosen], images.labels[chosen], VALIDATION_CLASSES, source=source)


def _validation_classes(names: Sequence[str]) -> Sequence[str]:
    missing = sorted(set(VALIDATION_CLASSES) - set(names))
    if missing:
        raise HoldfastError(f"tinyimagenet32 lacks {len(missing)} of the 20 validation classes: {missing[0]}, ...")
    return VALIDATION_CLASSES
