"""TinyImageNet, at its own size and at 32 pixels."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.train.data.cache import read_listing
from holdfast.train.data.images import ImageSet, first_classes, only_classes
from holdfast.train.data.listing import FileListing, check_complete, list_class_folders, list_named_files, read_rows
from holdfast.train.data.readers.npz import read_pack
from holdfast.train.data.root import require_data_root, require_in_folder, resolve_path

FOLDER = "tiny-imagenet-200"
CLASSES, IMAGES = 200, {"train": 100_000, "val": 10_000}


def tinyimagenet200(
    root: Path, split: str, *, path: str = FOLDER, size: int = 64, incomplete: bool = False
) -> ImageSet:
    """TinyImageNet's 200 classes from the folders of ``tiny-imagenet-200``; splits train and val.

    path: folder of the dataset, in the data root.
    size: side of the square images, in pixels.
    incomplete: accept missing images.
    """
    return read_listing(list_files_200(root, split, path, incomplete), root, name=f"tinyimagenet200-{split}", size=size)


def tinyimagenet32(root: Path, split: str, *, classes: int | None = None, incomplete: bool = False) -> ImageSet:
    """TinyImageNet at 32 x 32, from ``tinyimagenet32.npz`` or ``tiny-imagenet-200``; splits train and val.

    classes: the first so many of the 200 classes, in the order of ``wnids.txt``; None for all. Such sets are nested.
    incomplete: accept missing images. The number of images in a pack is not checked.
    """
    return read_at_32(root, split, lambda names: first_classes(names, classes), incomplete=incomplete)


def read_at_32(
    root: Path, split: str, choose: Callable[[Sequence[str]], Sequence[str]], *, incomplete: bool
) -> ImageSet:
    """TinyImageNet at 32 x 32, only the classes that ``choose`` returns when it is given all class names."""
    pack, folder = require_data_root(root, "tinyimagenet32.npz", FOLDER) / "tinyimagenet32.npz", root / FOLDER
    if pack.is_file():
        images = read_pack(pack, split)
        return only_classes(images, choose(images.class_names))
    if not folder.is_dir():
        raise HoldfastError(f"tinyimagenet32 not found: looked for {pack.name} and {FOLDER}/ in {root.absolute()}")
    listing = list_files_200(root, split, FOLDER, incomplete)
    chosen = listing.only_classes(choose(listing.class_names))
    return read_listing(chosen, root, name=f"tinyimagenet32-{split}", size=32)


def list_files_200(root: Path, split: str, path: str = FOLDER, incomplete: bool = False) -> FileListing:
    """The files that ``tinyimagenet200`` reads; their number is checked."""
    if split not in IMAGES:
        raise unknown_name("split of TinyImageNet", split, IMAGES)
    top = resolve_path(root, path)
    require_in_folder(top, "wnids.txt", "TinyImageNet is expected there, as downloaded")
    wnids = [row[0] for row in read_rows(top / "wnids.txt", 1)]
    listing = _list_training(top / "train", wnids) if split == "train" else _list_validation(top / "val", wnids)
    check_complete(listing, images=IMAGES[split], classes=CLASSES, incomplete=incomplete)
    return listing


def _list_training(top: Path, wnids: list[str]) -> FileListing:
    """The training files, in one folder per class. The file of boxes in each folder names images that are missing."""
    listing = list_class_folders(top, wnids)
    if len(listing) == IMAGES["train"]:
        return listing
    there = {file.name for file in listing.files}
    boxes = [top / wnid / f"{wnid}_boxes.txt" for wnid in wnids]
    named = [row[0] for file in boxes if file.is_file() for row in read_rows(file, 1)]
    return replace(listing, missing=tuple(name for name in named if name not in there))


def _list_validation(top: Path, wnids: list[str]) -> FileListing:
    """The validation files, all in one folder; a text file gives the class of each."""
    label = {wnid: number for number, wnid in enumerate(wnids)}
    annotations = top / "val_annotations.txt"
    named = []
    for file, wnid in read_rows(annotations, 2):
        if wnid not in label:
            raise HoldfastError(f"{annotations}: {file} has class {wnid}, which is not in wnids.txt")
        named.append((f"images/{file}", label[wnid]))
    return list_named_files(top, named, wnids)
