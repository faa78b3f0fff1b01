"""The names in a gallery's folder, and the lock that keeps a second process out."""

import fcntl
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
            raise HoldfastError(f"{self.path}: the gallery is open elsewhere; close it there first") from None
        self._lock = file

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def bytes_on_disk(self) -> int:
        """What the files take up, holes left out."""
        return sum(512 * file.stat().st_blocks for file in self.path.rglob("*") if file.is_file())
