"""The files in a gallery's folder, and the lock that keeps a second process out."""

import contextlib
import os
import re
from pathlib import Path

from filelock import BaseFileLock

from holdfast.core.errors import HoldfastError
from holdfast.core.file_lock import acquire_lock


class GalleryFolder:
    """``catalogue.sqlite``: items and versions. ``vectors``: the embedded engine. ``versions/0001``: a model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: BaseFileLock | None = None

    @property
    def catalogue(self) -> Path:
        return self.path / "catalogue.sqlite"

    @property
    def attached(self) -> Path:
        """Describes the store of an attached gallery, which has no catalogue."""
        return self.path / "attached.json"

    @property
    def served(self) -> Path:
        """Where the process that serves the gallery listens, and the token of its owner."""
        return self.path / "served.json"

    @property
    def vectors(self) -> Path:
        return self.path / "vectors"

    @property
    def versions(self) -> Path:
        return self.path / "versions"

    def version(self, number: int) -> Path:
        return self.versions / f"{number:04d}"

    def version_folders(self) -> dict[int, Path]:
        """The folders of versions by number. Files and folders with other names, such as copies, are left out."""
        found = {int(path.name): path for path in self.versions.iterdir() if re.fullmatch("[0-9]{4,9}", path.name)}
        return {number: path for number, path in found.items() if path == self.version(number) and path.is_dir()}

    def lock(self) -> None:
        """Keep other processes out until ``unlock``, or until this process ends."""
        self._lock = acquire_lock(self.path / "lock", busy=open_elsewhere(self.path))

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def bytes_on_disk(self) -> int:
        """Size of all files, without the holes of sparse files."""
        return bytes_below(self.path)


def open_elsewhere(gallery: Path) -> HoldfastError:
    """The error for a gallery that another process has open."""
    return HoldfastError(
        f"{gallery}: the gallery is open elsewhere; close it there first, or have holdfast serve keep it "
        "open: commands then go through the service"
    )


def bytes_below(folder: Path) -> int:
    """Size of all files below a folder, without holes; files created or deleted meanwhile may be missed."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += 512 * os.lstat(os.path.join(parent, name)).st_blocks
    return total
