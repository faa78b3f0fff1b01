"""The user's own image files: in one folder per class, or listed in a CSV file.

A CSV file has the columns ``path`` and ``label``, and perhaps ``split`` and ``id``.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.problems import Problem, problems_error
from holdfast.core.wording import are, broken_letters, counted, first_few, printable
from holdfast.embedders.image_folder import BAD_NAME, NO_TARGET, file_problem, find_files, has_image_suffix
from holdfast.embedders.image_table import SPLIT_NAMES, TableRow, read_table_rows
from holdfast.embedders.pixels import Colour
from holdfast.train.data.decode import decode
from holdfast.train.data.images import ImageSet, canonical
from holdfast.train.data.listing import FileListing, list_image_files, make_listing
from holdfast.train.data.root import resolve_path


@dataclass(frozen=True, eq=False)
class FoundImages:
    """The image files of a folder or table with their classes, before any is decoded.

    listing: files that can be used as far as their names tell. Its classes have at least one file each.
    problems: files and folders that cannot be used; a class without images is one of them.
    notes: sentences about what was read in a way that may not be meant, and about what was passed over.
    files: how many files were looked at.
    classes: names of all classes, also of those without a usable file.
    """

    listing: FileListing
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    files: int
    classes: tuple[str, ...]


def folder(
    root: Path,
    split: str,
    *,
    path: str,
    size: int = 32,
    colour: Colour = "rgb",
    split_folders: bool | None = None,
) -> ImageSet:
    """The images under ``path/split/class/``, or under ``path/class/`` for the split train of a folder without splits.

    path: absolute, or relative to the data root.
    size: side of the square images, in pixels.
    colour: "rgb" or "grey".
    split_folders: whether the folders in ``path`` are splits; default: if all of them are named like splits.

    Classes are sorted by folder name. Within a class, subfolders and links are followed; hidden files and files
    without an image suffix are ignored. A class without images is refused.
    """
    found = find_in_folders(resolve_path(root, path), split, split_folders)
    listing = found.listing
    if found.problems:
        raise problems_error(listing.source, found.problems, found.files)
    images = decode(listing.files, size=size, colour=colour, name=str(listing.source))
    return canonical(images, listing.labels, listing.class_names, source=str(listing.source))


def find_in_folders(path: Path, split: str = "train", split_folders: bool | None = None) -> FoundImages:
    """The images in one folder per class, as ``folder`` reads them, and everything that is wrong there."""
    top, notes = _split_folder(path, split, split_folders)
    entries = _visible(top)
    folders = [entry for entry in entries if os.path.isdir(entry)]
    if not folders:
        loose = len(list_image_files(top))
        what = f"{counted(loose, 'image')}, but in no folder" if loose else "empty"
        hint = "" if top == path else f". If {top.name} is a class, pass --split-folders no (split_folders=False)"
        raise HoldfastError(f"{printable(top)}: {what}; expected one folder per class{hint}")
    problems, passed_over = _beside(entries, notes)
    looked_at = len(entries) - len(folders)
    found: list[tuple[Path, str]] = []
    for one in folders:
        if reason := _bad_class(one, top):
            problems.append(Problem(one, reason))
            continue
        inside = find_files(one)
        looked_at += len(inside)
        problems += inside.problems
        passed_over += inside.passed_over
        if not inside.images and not inside.problems:
            problems.append(Problem(one, f"no images{_other_files(inside.passed_over)}; remove the folder or fill it"))
        found += [(file, one.name) for file in inside.images]
    if passed_over:
        notes.append(f"{counted(len(passed_over), 'file')} passed over as not images ({_suffixes(passed_over)})")
    return FoundImages(
        _labelled(top, found), tuple(problems), tuple(notes), looked_at, tuple(printable(one.name) for one in folders)
    )


def _beside(entries: Sequence[Path], notes: list[str]) -> tuple[list[Problem], list[Path]]:
    """The problems and the files passed over among what lies beside the class folders; a note counts the images."""
    problems, passed_over, loose = [], [], 0
    for entry in entries:
        if os.path.isdir(entry):
            continue
        if has_image_suffix(entry.name):
            loose += 1
        elif entry.is_symlink() and not os.path.exists(entry):
            problems.append(Problem(entry, NO_TARGET))  # perhaps once a class
        else:
            passed_over.append(entry)
    if loose:
        notes.append(f"{counted(loose, 'image')} beside the class folders {are(loose)} in no class: passed over")
    return problems, passed_over


def _bad_class(entry: Path, top: Path) -> str:
    """What is wrong with a class's folder itself; "" if nothing is."""
    if broken_letters(entry.name):
        return BAD_NAME
    real, above = Path(os.path.realpath(entry)), Path(os.path.realpath(top))
    return "a link to a folder above it" if real == above or real in above.parents else ""


def _labelled(source: Path, found: Sequence[tuple[Path, str]], classes: Sequence[str] | None = None) -> FileListing:
    """A listing of pairs of file and class; ``classes`` are those that have files unless they are given."""
    names = sorted({name for _, name in found}) if classes is None else list(classes)
    number = {name: label for label, name in enumerate(names)}
    return make_listing(source, [(file, number[name]) for file, name in found], names)


def _other_files(passed_over: Sequence[Path]) -> str:
    return f" ({counted(len(passed_over), 'other file')}: {_suffixes(passed_over)})" if passed_over else ""


def _suffixes(files: Sequence[Path]) -> str:
    return first_few(sorted({printable(file.suffix.lower()) or "no suffix" for file in files}), 5)


def _split_folder(top: Path, split: str, split_folders: bool | None) -> tuple[Path, list[str]]:
    """The folder of the classes, and a note if folders named like splits are read as classes."""
    if not top.is_dir():
        raise HoldfastError(f"{printable(top)}: no such folder")
    names = [entry.name for entry in _visible(top) if os.path.isdir(entry)]
    splits = [name for name in SPLIT_NAMES if name in names]
    splits_only = bool(splits) and len(splits) == len(names)
    if splits_only if split_folders is None else split_folders:
        if not (top / split).is_dir():
            found = f"splits found: {', '.join(splits) or 'none'}"
            raise HoldfastError(f"{printable(top)}: no folder {split!r}; {found}")
        return top / split, []
    if split != "train":
        found = f"splits found: {', '.join(splits) or 'none'}"
        others = [name for name in names if name not in splits]
        mixed = f", beside {first_few(others)}; split_folders = true reads them" if splits and others else ""
        raise HoldfastError(f"{printable(top)}: no folder {split!r}; {found}{mixed}")
    if not splits or split_folders is not None:
        return top, []
    named = " and ".join(filter(None, (", ".join(splits[:-1]), splits[-1])))
    return top, [
        f"{named} {are(len(splits))} read as {'a class' if len(splits) == 1 else 'classes'}, because there are folders "
        "with other names beside; --split-folders yes (split_folders=True) reads the split train alone"
    ]


def _visible(top: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(top))
    except OSError as error:
        raise HoldfastError(f"{printable(top)}: a folder that cannot be listed ({error.strerror})") from error
    return [top / name for name in names if not name.startswith(".")]


def csv_list(root: Path, split: str, *, path: str, size: int = 32, colour: Colour = "rgb") -> ImageSet:
    """The images in the rows of one split; without a split column every row belongs to the split train.

    path: the CSV file, absolute or relative to the data root; image paths in it are relative to the file.
    size: side of the square images, in pixels.
    colour: "rgb" or "grey".

    Labels are any text. The classes are the sorted labels of the whole file, so that its splits share them.
    """
    table = resolve_path(root, path)
    rows, classes = _chosen(table, split)
    problems = _bad_rows(table, rows)
    if problems:
        raise problems_error(table, problems, len(rows))
    listing = _labelled(table, [(table.parent / row.path, row.label) for row in rows], classes)
    origins = [row.origin(table) for row in rows]
    images = decode(listing.files, size=size, colour=colour, origins=origins, name=str(table))
    return canonical(images, listing.labels, listing.class_names, source=f"{table}, split {split}")


def find_in_csv(table: Path) -> FoundImages:
    """The images that ``csv_list`` reads, and the files that are named but missing."""
    rows, _ = _chosen(table, "train")
    problems = _bad_rows(table, rows)
    bad = {one.origin for one in problems}
    found = [(table.parent / row.path, row.label) for row in rows if row.origin(table) not in bad]
    classes = sorted({printable(row.label) for row in rows})
    return FoundImages(_labelled(table, found), tuple(problems), (), len(rows), tuple(classes))


def _chosen(table: Path, split: str) -> tuple[list[TableRow], list[str]]:
    """The rows of one split, and the classes of all splits."""
    rows = read_table_rows(table, ("path", "label"))
    chosen = [row for row in rows if row.split == split]
    if not chosen:
        raise unknown_name(f"split of {table}", split, {row.split for row in rows})
    return chosen, sorted({row.label for row in rows})


def _bad_rows(table: Path, rows: Sequence[TableRow]) -> list[Problem]:
    """Rows with a file that does not exist, or with a file or label that cannot be stored as text."""
    problems = []
    for row in rows:
        file = table.parent / row.path
        reason = file_problem(file)
        if not reason and broken_letters(row.label):
            reason = f"its label ({printable(row.label)}) has a line break or another control character"
        if reason:
            problems.append(Problem(file, reason, row.origin(table)))
    return problems
