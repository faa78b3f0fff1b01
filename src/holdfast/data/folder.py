"""Image files in one folder per class."""

from pathlib import Path

from holdfast.data.decode import decode
from holdfast.data.images import ImageSet, canonical
from holdfast.data.listing import Listing, image_files, listed
from holdfast.data.root import located
from holdfast.errors import HoldfastError
from holdfast.pixels import Colour

_SPLIT_NAMES = ("train", "val", "valid", "validation", "test", "query", "gallery")


def folder(root: Path, split: str, *, path: str, size: int = 32, colour: Colour = "rgb") -> ImageSet:
    """The images under ``path/split/class/``, or, for the split train of a folder without splits, ``path/class/``.

    The classes are the folders of that split in the order of their names. Within a class, folders are walked and
    links followed; what is hidden or has no image suffix is ignored. A class without images is refused.
    """
    listing = folder_listing(located(root, path), split)
    images = decode(listing.files, size=size, colour=colour)
    names = [file.relative_to(listing.source).as_posix() for file in listing.files]
    return canonical(images, listing.labels, listing.class_names, source=str(listing.source), names=names)


def folder_listing(path: Path, split: str = "train") -> Listing:
    """The files that ``folder`` reads, and their classes; nothing is decoded."""
    top = _split_folder(path, split)
    classes = sorted((entry for entry in _visible(top) if entry.is_dir()), key=lambda entry: entry.name)
    if not classes:
        loose = len(image_files(top))
        what = f"{loose} images, but in no folder" if loose else "empty"
        raise HoldfastError(f"{top}: {what}; expected one folder per class")
    found: list[tuple[Path, int]] = []
    for label, folder_of_class in enumerate(classes):
        files = image_files(folder_of_class)
        if not files:
            raise HoldfastError(f"{folder_of_class}: no images; remove the folder or fill it")
        found += [(file, label) for file in files]
    return listed(top, found, [entry.name for entry in classes])


def _split_folder(top: Path, split: str) -> Path:
    if not top.is_dir():
        raise HoldfastError(f"{top}: no such folder")
    if (top / split).is_dir():
        return top / split
    # Where other splits lie side by side, they would be taken for classes.
    splits = [name for name in _SPLIT_NAMES if (top / name).is_dir()]
    if split != "train" or splits:
        raise HoldfastError(f"{top}: no folder {split!r}; splits found: {', '.join(splits) or 'none'}")
    return top


def _visible(top: Path) -> list[Path]:
    return [entry for entry in top.iterdir() if not entry.name.startswith(".")]
