"""Where datasets lie on this machine.

A downloaded set that is not where it is looked for: what lies near it, and what to do about it.
"""

import os
from pathlib import Path

from holdfast.data.decode import IMAGE_SUFFIXES
from holdfast.errors import HoldfastError
from holdfast.wording import counted

VARIABLE = "HOLDFAST_DATA"


def data_root(explicit: str | Path | None = None) -> Path:
    """The folder with datasets: ``explicit``, else the variable HOLDFAST_DATA, else ``./data``.

    It need not exist: drawn data need no files, and a reader that needs some says so (``existing``).
    """
    return Path(explicit or os.environ.get(VARIABLE) or "data").expanduser()


def existing(root: Path, *wanted: str) -> Path:
    """``root`` itself, refused when it is no folder; ``wanted``: what is looked for in it, any of which will do."""
    if not root.is_dir():
        how = f"set {VARIABLE} or name the data root" if root == data_root() else "name the folder that has it instead"
        sought = " or ".join(wanted)
        raise HoldfastError(f"{root.absolute()}: no such data folder, in which {sought} is looked for; {how}")
    return root


def located(root: Path, path: str) -> Path:
    """``path`` as given when absolute (the root is then not needed), else under ``root``."""
    given = Path(path).expanduser()
    return given if given.is_absolute() else existing(root, path) / given


ARCHIVES = (".zip", ".tgz", ".tar.gz", ".tar")


def refuse_if_absent(top: Path, mark: str, expected: str) -> None:
    """Refuse a folder without ``mark``, a file or folder that the set has; ``expected``: what should be there."""
    if (top / mark).exists():
        return
    first, *inside = Path(mark).parts
    lacking = f"{top / first}: no such {'folder' if inside else 'file'}" if top.is_dir() else f"{top}: no such folder"
    near = found_near(top, mark)
    raise HoldfastError(f"{lacking}; {expected}{f'. {near}' if near else ''}")


def found_near(top: Path, mark: str) -> str:
    """One sentence on the set where people have it instead: packed, a level off, or under another name."""
    if (top.parent / mark).exists():
        return f"{top.parent} is the set itself: name the folder above it as the data root"
    if (top / top.name / mark).exists():
        return f"It lies one level deeper, in {top / top.name}: move it up"
    packed = [file for suffix in ARCHIVES if (file := top.parent / f"{top.name}{suffix}").is_file()]
    if packed:
        return f"Unpack {packed[0].name} beside it"
    for folder in sorted(top.parent.glob("*/")):
        if (folder / mark).exists():
            return f"{folder} looks like it: rename it to {top.name}, or link to it"
        if (folder / top.name / mark).exists():
            return f"It lies in {folder}: name that folder as the data root"
    return ""


def unsorted_files(top: Path) -> str:
    """What to do with a folder that has pictures or archives where class folders are expected; "" with neither."""
    files = [file.name.lower() for file in top.iterdir() if file.is_file() and not file.name.startswith(".")]
    loose = sum(name.endswith(tuple(IMAGE_SUFFIXES)) for name in files)
    if loose:
        return f"{counted(loose, 'image')} in it lie in no class folder: sort them into one folder per class"
    packed = sum(name.endswith(ARCHIVES) for name in files)
    return f"unpack the {counted(packed, 'archive')} in it, one folder per class" if packed else ""
