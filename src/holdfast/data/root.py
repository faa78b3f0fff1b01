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
