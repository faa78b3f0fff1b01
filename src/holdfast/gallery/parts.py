"""What a gallery consists of, for those who change it as a whole: backfill and rollback."""

import threading
from dataclasses import dataclass, field
from typing import Any

from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.engine import Engine
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.models import Models
from holdfast.gallery.searching import SearchesUnderWay
from holdfast.gallery.writing import Writer


@dataclass(frozen=True)
class Parts:
    """writing: held by whoever writes. moving: held, for as long as it takes, by the one who moves items."""

    folder: GalleryFolder
    engine: Engine
    catalogue: Catalogue
    models: Models
    writer: Writer
    writing: Any  # threading.RLock, which is a function to type checkers
    searches: SearchesUnderWay = field(default_factory=SearchesUnderWay)
    moving: threading.Lock = field(default_factory=threading.Lock)
