"""How often each item was a hit: counted in memory, written to the catalogue now and then."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable

from holdfast.errors import UnavailableError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.items import Hit

FLUSH_AT = 1000
"""Items with counts that are not written yet; writing them takes some 2 ms of one search's time."""


class HitCounts:
    """Any thread may count. A process that is killed, or a disk that is full, loses the counts of up to ``FLUSH_AT``
    items, and nothing else."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def count(self, hits: Iterable[Hit]) -> None:
        with self._lock:
            self._counts.update(hit.id for hit in hits)
            full = len(self._counts) >= FLUSH_AT
        if full:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if counts:
            with contextlib.suppress(UnavailableError):  # a full disk: a search was answered all the same
                self._catalogue.add_hits(counts)
