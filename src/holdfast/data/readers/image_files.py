"""The user's own image files: in one folder per class, or listed in a CSV file.

A CSV file has the header ``path,label`` or ``path,label,split``.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

from holdfast.data.decode import decode
from holdfast.data.images import ImageSet, canonical
from holdfast.data.listing import Listing, list_image_files, make_listing
from holdfast.data.root import resolve_path
from holdfast.errors import HoldfastError, unknown_name
from holdfast.pixels import Colour

_SPLIT_NAMES = ("train", "val", "valid", "validation", "test", "query", "gallery")


def folder(root: Path, split: str, *, path: str, size: int = 32, colour: Colour = "rgb") -> ImageSet:
    """The images under ``path/split/class/``, or under ``path/class/`` for the split train of a folder without splits.

    path: absolute, or relative to the data root.
    size: side of the square images, in pixels.
    colour: "rgb" or "grey".

    Classes are sorted by folder name. Within a class, subfolders and links are followed; hidden files and files
    without an image suffix are ignored. A class without images is refused.
    """
    listing = folder_listing(resolve_path(root, path), split)
    images = decode(listing.files, size=size, colour=colour)
    names = [file.relative_to(listing.source).as_posix() for file in listing.files]
    return canonical(images, listing.labels, listing.class_names, source=str(listing.source), names=names)


def folder_listing(path: Path, split: str = "train") -> Listing:
    """The files that ``folder`` reads, and their classes."""
    top = _split_folder(path, split)
    classes = sorted((entry for entry in _visible(top) if entry.is_dir()), key=lambda entry: entry.name)
    if not classes:
        loose = len(list_image_files(top))
        what = f"{loose} images, but in no folder" if loose else "empty"
        raise HoldfastError(f"{top}: {what}; expected one folder per class")
    found: list[tuple[Path, int]] = []
    for label, folder_of_class in enumerate(classes):
        files = list_image_files(folder_of_class)
        if not files:
            raise HoldfastError(f"{folder_of_class}: no images; remove the folder or fill it")
        found += [(file, label) for file in files]
    return make_listing(top, found, [entry.name for entry in classes])


def _split_folder(top: Path, split: str) -> Path:
    if not top.is_dir():
        raise HoldfastError(f"{top}: no such folder")
    if (top / split).is_dir():
        return top / split
    # Folders of other splits would be read as classes.
    splits = [name for name in _SPLIT_NAMES if (top / name).is_dir()]
    if split != "train" or splits:
        raise HoldfastError(f"{top}: no folder {split!r}; splits found: {', '.join(splits) or 'none'}")
    return top


def _visible(top: Path) -> list[Path]:
    return [entry for entry in top.iterdir() if not entry.name.startswith(".")]


@dataclass(frozen=True)
class _Row:
    line: int
    file: Path
    label: str
    split: str
    name: str


def csv_list(root: Path, split: str, *, path: str, size: int = 32, colour: Colour = "rgb") -> ImageSet:
    """The images in the rows of one split; without a split column every row belongs to the split train.

    path: the CSV file, absolute or relative to the data root; image paths in it are relative to the file.
    size: side of the square images, in pixels.
    colour: "rgb" or "grey".

    Labels are any text. The classes are the sorted labels of the whole file, so that its splits share them.
    """
    table = resolve_path(root, path)
    rows, classes = _chosen(table, split)
    listing, origins = _listing(table, rows, classes)
    images = decode(listing.files, size=size, colour=colour, origins=origins)
    names = [row.name for row in rows]
    return canonical(images, listing.labels, listing.class_names, source=f"{table}, split {split}", names=names)


def csv_listing(table: Path, split: str = "train") -> tuple[Listing, list[str]]:
    """The files that ``csv_list`` reads with their classes, and the line that names each file."""
    return _listing(table, *_chosen(table, split))


def _chosen(table: Path, split: str) -> tuple[list[_Row], list[str]]:
    """The rows of one split, and the classes of all splits."""
    rows = _rows(table)
    chosen = [row for row in rows if row.split == split]
    if not chosen:
        raise unknown_name(f"split of {table}", split, {row.split for row in rows})
    for row in chosen:
        if not row.file.is_file():
            raise HoldfastError(f"{table}, line {row.line}: {row.file}: no such image file")
    return chosen, sorted({row.label for row in rows})


def _listing(table: Path, rows: list[_Row], classes: list[str]) -> tuple[Listing, list[str]]:
    number = {name: index for index, name in enumerate(classes)}
    found = [(row.file, number[row.label]) for row in rows]
    return make_listing(table, found, classes), [f"{table}, line {row.line}" for row in rows]


def _rows(table: Path) -> list[_Row]:
    rows: list[_Row] = []
    try:
        with table.open(encoding="utf-8-sig", newline="") as stream:  # spreadsheets write a byte-order mark
            reader = csv.reader(stream, strict=True)
            header = [name.strip().lower() for name in next(reader, [])]
            if header not in (["path", "label"], ["path", "label", "split"]):
                raise HoldfastError(f"{table}, line 1: the header must be path,label or path,label,split")
            rows += (_row(fields, reader.line_num, len(header), table) for fields in reader if fields)
    except FileNotFoundError:
        raise HoldfastError(f"{table}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{table}: not readable as UTF-8 text ({error})") from error
    except csv.Error as error:
        raise HoldfastError(f"{table}, line {reader.line_num}: {error}") from error
    if not rows:
        raise HoldfastError(f"{table}: no rows after the header")
    return rows


def _row(fields: list[str], line: int, columns: int, table: Path) -> _Row:
    if len(fields) != columns:
        raise HoldfastError(f"{table}, line {line}: {columns} columns expected, found {len(fields)}")
    file, label, split = (field.strip() for field in (*fields, "train")[:3])
    if not (file and label and split):
        raise HoldfastError(f"{table}, line {line}: an empty field")
    return _Row(line, table.parent / file, label, split, file)
