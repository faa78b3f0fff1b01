"""The names in a gallery's folder, and the lock that keeps a second process out."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import IO

from holdfast.errors import HoldfastError


class GalleryFolder:
    """``catalogue.sqlite`` decides what there is; ``vectors`` belongs to the engine, ``versions/0001`` to a model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @property
    def catalogue(self) -> Path:
        return self.path / "catalogue.sqlite"

    @property
    def vectors(self) -> Path:
        return self.path / "vectors"

    @property
    def versions(self) -> Path:
        return self.path / "versions"

    def version(self, number: int) -> Path:
        return self.versions / f"{number:04d}"

    def lock(self) -> None:
        """Ours until ``unlock`` or the end of the process, however it ends."""
        file = (self.path / "lock").open("a", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise HoldfastError(
                f"{self.path}: the gallery is open elsewhere; close it there first, or have holdfast serve keep it "
                "open: commands then go through the service"
            ) from None
        self._lock = file

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def bytes_on_disk(self) -> int:
        """What the files take up, holes left out."""
        return bytes_below(self.path)


def bytes_below(folder: Path) -> int:
    """What all files below a folder take up, holes left out; those that come or go meanwhile may be missed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += 512 * os.lstat(os.path.join(place, name)).st_blocks
    return total
