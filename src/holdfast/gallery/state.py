"""What a gallery consists of, for those who look at it or change it as a whole."""

import threading
from dataclasses import dataclass, field
from typing import Any

from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.engines.protocol import Engine
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.models import Models
from holdfast.gallery.searching import SearchesUnderWay
from holdfast.gallery.writing import Writer


@dataclass(frozen=True)
class GalleryState:
    """What the parts are called, and the locks.

    writing: held while something is written.
    registering: held by the one who registers a model, also while it embeds. Taken before ``writing``, never after it.
    moving: held, for as long as it takes, by the one who moves items or vectors.
    """

    folder: GalleryFolder
    engine: Engine
    catalogue: Catalogue
    models: Models
    writer: Writer
    writing: Any  # threading.RLock, which is a function to type checkers
    searches: SearchesUnderWay = field(default_factory=SearchesUnderWay)
    registering: threading.Lock = field(default_factory=threading.Lock)
    moving: "Turn" = field(default_factory=lambda: Turn())


class Turn:
    """Held by one at a time, with what it is held for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.what: str | None = None

    def take(self, what: str) -> bool:
        """Whether it was free; it is not waited for."""
        if not self._lock.acquire(blocking=False):
            return False
        self.what = what
        return True

    def give_back(self) -> None:
        self.what = None
        self._lock.release()
