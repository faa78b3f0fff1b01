"""The data root, and errors with hints for datasets that are not found in it."""

import os
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.wording import are, counted
from holdfast.embedders.pixels import IMAGE_SUFFIXES

VARIABLE = "HOLDFAST_DATA"
ARCHIVES = (".zip", ".tgz", ".tar.gz", ".tar")


def data_root(explicit: str | Path | None = None) -> Path:
    """The folder with datasets: ``explicit``, else the variable HOLDFAST_DATA, else ``./data``.

    It need not exist. Readers that need files check it by ``require_data_root``.
    """
    return Path(explicit or os.environ.get(VARIABLE) or "data").expanduser()


def require_data_root(root: Path, *wanted: str) -> Path:
    """Return ``root``; refuse it if it is not a folder.

    wanted: files looked for in it, for the error.
    """
    if not root.is_dir():
        how = f"set {VARIABLE} or name the data root" if root == data_root() else "name the folder that has it"
        raise HoldfastError(f"{root.absolute()}: no such data folder; looked for {' or '.join(wanted)} in it; {how}")
    return root


def resolve_path(root: Path, path: str) -> Path:
    """``path`` itself if it is absolute (``root`` need not exist then), else ``path`` in ``root``."""
    given = Path(path).expanduser()
    return given if given.is_absolute() else require_data_root(root, path) / given


def require_in_folder(top: Path, mark: str, expected: str) -> None:
    """Refuse the folder ``top`` of a dataset if it does not contain ``mark``.

    mark: a file or folder that the dataset has.
    expected: what should be in the folder, for the error.
    """
    if (top / mark).exists():
        return
    first, *inside = Path(mark).parts
    missing = f"{top / first}: no such {'folder' if inside else 'file'}" if top.is_dir() else f"{top}: no such folder"
    hint = nearby_hint(top, mark)
    raise HoldfastError(f"{missing}; {expected}{f'. {hint}' if hint else ''}")


def nearby_hint(top: Path, mark: str) -> str:
    """A sentence about a dataset that is nearby: packed, one level off, or under another name; "" if there is none."""
    if (top.parent / mark).exists():
        return f"{top.parent} is the set itself: name the folder above it as the data root"
    if (top / top.name / mark).exists():
        return f"It is one level deeper, in {top / top.name}: move it up"
    packed = [file for suffix in ARCHIVES if (file := top.parent / f"{top.name}{suffix}").is_file()]
    if packed:
        return f"Unpack {packed[0].name} there"
    for folder in sorted(top.parent.glob("*/")):
        if (folder / mark).exists():
            return f"{folder} looks like it: rename it to {top.name}, or link to it"
        if (folder / top.name / mark).exists():
            return f"It is in {folder}: name that folder as the data root"
    return ""


def unsorted_hint(top: Path) -> str:
    """Advice for a folder with images or archives instead of class folders; "" if it has neither."""
    files = [file.name.lower() for file in top.iterdir() if file.is_file() and not file.name.startswith(".")]
    loose = sum(name.endswith(tuple(IMAGE_SUFFIXES)) for name in files)
    if loose:
        return f"{counted(loose, 'image')} in it {are(loose)} in no class folder: sort them into one folder per class"
    packed = sum(name.endswith(ARCHIVES) for name in files)
    return f"unpack the {counted(packed, 'archive')} in it, one folder per class" if packed else ""
