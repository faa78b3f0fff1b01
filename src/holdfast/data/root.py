"""Where datasets lie on this machine."""

import os
from pathlib import Path

from holdfast.errors import HoldfastError

VARIABLE = "HOLDFAST_DATA"


def data_root(explicit: str | Path | None = None) -> Path:
    """The folder with datasets: ``explicit``, else the variable HOLDFAST_DATA, else ``./data``.

    It need not exist: drawn data need no files, and a reader that needs some says so (``existing``).
    """
    return Path(explicit or os.environ.get(VARIABLE) or "data").expanduser()


def existing(root: Path) -> Path:
    """``root`` itself, refused when it is no folder."""
    if not root.is_dir():
        raise HoldfastError(f"{root.absolute()}: no such data folder; set {VARIABLE} or name the data root explicitly")
    return root


def located(root: Path, path: str) -> Path:
    """``path`` as given when absolute (the root is then not needed), else under ``root``."""
    given = Path(path).expanduser()
    return given if given.is_absolute() else existing(root) / given
