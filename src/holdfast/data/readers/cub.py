"""CUB-200-2011: 180 classes of birds to train on, the last 20 as the open set."""

from pathlib import Path

from holdfast.data.cache import read_listing
from holdfast.data.images import ImageSet
from holdfast.data.listing import Listing, listed_if_there, number_pairs, refuse_if_incomplete, rows
from holdfast.data.root import located, refuse_if_absent
from holdfast.errors import HoldfastError, unknown_name

FOLDER = "CUB_200_2011"
TRAINED, TESTED = range(1, 181), range(181, 201)
NAMES_20 = (
    "Worm_eating_Warbler", "Yellow_Warbler", "Northern_Waterthrush", "Louisiana_Waterthrush", "Bohemian_Waxwing",
    "Cedar_Waxwing", "American_Three_toed_Woodpecker", "Pileated_Woodpecker", "Red_bellied_Woodpecker",
    "Red_cockaded_Woodpecker", "Red_headed_Woodpecker", "Downy_Woodpecker", "Bewick_Wren", "Cactus_Wren",
    "Carolina_Wren", "House_Wren", "Marsh_Wren", "Rock_Wren", "Winter_Wren", "Common_Yellowthroat",
)  # fmt: skip
"""The test classes of the paper's appendix C, numbers 181 to 200."""

IMAGES_180 = {"train": 5_396, "test": 5_206}
IMAGES_20 = {"train": 598, "test": 588}


def cub180(
    root: Path,
    split: str,
    *,
    path: str = FOLDER,
    size: int = 256,
    resize: int | None = None,
    incomplete: bool = False,
) -> ImageSet:
    """Classes 1 to 180 of CUB-200-2011, by its own splits train and test."""
    listing = files_180(root, split, path, incomplete)
    return read_listing(listing, root, name=f"cub180-{split}", size=size, resize=resize)


def cub20(
    root: Path,
    split: str,
    *,
    path: str = FOLDER,
    size: int = 224,
    resize: int | None = 256,
    incomplete: bool = False,
) -> ImageSet:
    """Classes 181 to 200 of CUB-200-2011, by its own splits: train (598) is the gallery, test (588) the queries.

    Differs from the paper: its footnote has the splits' roles the other way round, but its counts, 588 queries and a
    gallery of 598, allow only this.
    """
    listing = files_20(root, split, path, incomplete)
    return read_listing(listing, root, name=f"cub20-{split}", size=size, resize=resize)


def files_180(root: Path, split: str, path: str = FOLDER, incomplete: bool = False) -> Listing:
    """What ``cub180`` reads, counted."""
    listing = _listing(root, split, path, TRAINED)
    refuse_if_incomplete(listing, images=IMAGES_180[split], classes=180, incomplete=incomplete)
    return listing


def files_20(root: Path, split: str, path: str = FOLDER, incomplete: bool = False) -> Listing:
    """What ``cub20`` reads, counted."""
    listing = _listing(root, split, path, TESTED)
    refuse_if_incomplete(listing, images=IMAGES_20[split], classes=20, incomplete=incomplete)
    return listing


def _listing(root: Path, split: str, path: str, classes: range) -> Listing:
    if split not in IMAGES_180:
        raise unknown_name("split of CUB-200-2011", split, IMAGES_180)
    top = located(root, path)
    refuse_if_absent(top, "classes.txt", "CUB-200-2011 is expected there as it is downloaded")
    names = dict(_numbered(top / "classes.txt"))
    label_of = dict(number_pairs(top / "image_class_labels.txt"))
    of_train = dict(number_pairs(top / "train_test_split.txt"))
    missing = [number for number in classes if number not in names]
    if missing:
        raise HoldfastError(f"{top / 'classes.txt'}: class {missing[0]} is missing")
    _refuse_other_birds(top / "classes.txt", names)
    named = []
    for number, name in _numbered(top / "images.txt"):
        if number not in label_of or number not in of_train:
            raise HoldfastError(f"{top}: image {number} of images.txt has no class or no split in the files beside it")
        if label_of[number] in classes and bool(of_train[number]) == (split == "train"):
            named.append((name, label_of[number] - classes.start))
    return listed_if_there(top / "images", named, [names[number] for number in classes])


def _refuse_other_birds(file: Path, names: dict[int, str]) -> None:
    """The open set goes by numbers: in a copy with other numbers, training and test would mix unnoticed."""
    for number, bird in zip(TESTED, NAMES_20):
        expected = f"{number}.{bird}"
        if number in names and names[number] != expected:
            raise HoldfastError(
                f"{file}: class {number} is {names[number]} where the paper's open set has {expected}; "
                "take CUB-200-2011 as it is downloaded"
            )


def _numbered(file: Path) -> list[tuple[int, str]]:
    found = []
    for number, name in rows(file, 2):
        if not number.isdecimal():
            raise HoldfastError(f"{file}: a number and a name expected on each line, found {number!r}")
        found.append((int(number), name))
    return found
