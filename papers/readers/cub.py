"""CUB-200-2011: 180 bird classes for training, the last 20 for open-set evaluation."""

from collections.abc import Iterator
from pathlib import Path

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.train.data.cache import read_listing
from holdfast.train.data.images import ImageSet
from holdfast.train.data.listing import (
    FileListing,
    check_complete,
    list_class_folders,
    list_named_files,
    read_rows,
)
from holdfast.train.data.root import require_in_folder, resolve_path

FOLDER = "CUB_200_2011"
TRAIN_CLASSES, TEST_CLASSES = range(1, 181), range(181, 201)
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
    """Classes 1 to 180 of CUB-200-2011; splits train and test.

    path: folder of the dataset, in the data root.
    size: side of the square images, in pixels.
    resize: length of the shorter side before the centre crop; None is ``size``.
    incomplete: accept missing images.
    """
    listing = list_files_180(root, split, path, incomplete)
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
    """Classes 181 to 200 of CUB-200-2011; split train (598 images) is the gallery, test (588) the queries.

    The options are those of ``cub180``.

    Differs from the paper: its footnote swaps the two splits, but its counts (588 queries, a gallery of 598) do not.
    """
    listing = list_files_20(root, split, path, incomplete)
    return read_listing(listing, root, name=f"cub20-{split}", size=size, resize=resize)


def list_files_180(root: Path, split: str, path: str = FOLDER, incomplete: bool = False) -> FileListing:
    """The files that ``cub180`` reads; their number is checked."""
    listing = _listing(root, split, path, TRAIN_CLASSES)
    check_complete(listing, images=IMAGES_180[split], classes=180, incomplete=incomplete)
    return listing


def list_files_20(root: Path, split: str, path: str = FOLDER, incomplete: bool = False) -> FileListing:
    """The files that ``cub20`` reads; their number is checked."""
    listing = _listing(root, split, path, TEST_CLASSES)
    check_complete(listing, images=IMAGES_20[split], classes=20, incomplete=incomplete)
    return listing


def _listing(root: Path, split: str, path: str, classes: range) -> FileListing:
    if split not in IMAGES_180:
        raise unknown_name("split of CUB-200-2011", split, IMAGES_180)
    top = resolve_path(root, path)
    if (top / split).is_dir() and not (top / "classes.txt").exists():
        return _sorted_listing(top / split, classes)
    require_in_folder(top, "classes.txt", "CUB-200-2011 is expected there, as downloaded")
    names = dict(_numbered(top / "classes.txt"))
    label_of = dict(read_number_pairs(top / "image_class_labels.txt"))
    of_train = dict(read_number_pairs(top / "train_test_split.txt"))
    missing = [number for number in classes if number not in names]
    if missing:
        raise HoldfastError(f"{top / 'classes.txt'}: class {missing[0]} is missing")
    _check_class_names(top / "classes.txt", names)
    named = []
    for number, name in _numbered(top / "images.txt"):
        if number not in label_of or number not in of_train:
            raise HoldfastError(f"{top}: image {number} of images.txt is missing in another of its text files")
        if label_of[number] in classes and bool(of_train[number]) == (split == "train"):
            named.append((name, label_of[number] - classes.start))
    return list_named_files(top / "images", named, [names[number] for number in classes])


def _sorted_listing(folder: Path, classes: range) -> FileListing:
    """The files of a split whose classes are folders, such as ``181.Worm_eating_Warbler``."""
    names = {}
    for entry in sorted(entry.name for entry in folder.iterdir() if entry.is_dir()):
        number = entry.partition(".")[0]
        if number.isdecimal():
            names[int(number)] = entry
    missing = [number for number in classes if number not in names]
    if missing:
        raise HoldfastError(f"{folder}: the folder of class {missing[0]} is missing")
    _check_class_names(folder, names)
    return list_class_folders(folder, [names[number] for number in classes])


def _check_class_names(file: Path, names: dict[int, str]) -> None:
    """Refuse a copy with other class numbers: it would mix training and test classes unnoticed."""
    for number, bird in zip(TEST_CLASSES, NAMES_20):
        expected = f"{number}.{bird}"
        if number in names and names[number] != expected:
            raise HoldfastError(
                f"{file}: class {number} is {names[number]} where the paper's open set has {expected}; "
                "use CUB-200-2011 as downloaded"
            )


def _numbered(file: Path) -> list[tuple[int, str]]:
    pairs = []
    for number, name in read_rows(file, 2):
        if not number.isdecimal():
            raise HoldfastError(f"{file}: a number and a name expected on each line, found {number!r}")
        pairs.append((int(number), name))
    return pairs


def read_number_pairs(file: Path) -> Iterator[tuple[int, int]]:
    """The first two fields of each line, both whole numbers."""
    for first, second in read_rows(file, 2):
        try:
            yield int(first), int(second)
        except ValueError:
            raise HoldfastError(f"{file}: two whole numbers expected, found {first} {second}") from None
