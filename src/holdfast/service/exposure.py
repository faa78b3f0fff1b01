"""How often items of each version are among the first hits of searches."""

import threading
from collections import Counter
from collections.abc import Sequence

from holdfast.gallery import Hit

FIRST_PLACES = 10


class ExposureCounter:
    """Counts the first ``FIRST_PLACES`` places of answers by the version that embedded the item. Any thread may count.

    Beside each version's share of the items the counts show whether a version's items come first less often than there
    are such items, which nobody sees from single answers.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: Counter[int] = Counter()

    def count(self, hits: Sequence[Hit]) -> None:
        """Count the hits of a search of all items, best first."""
        versions = [hit.version for hit in hits[:FIRST_PLACES]]
        with self._lock:
            self._places.update(versions)

    def places(self) -> dict[int, int]:
        """Places so far, by version."""
        with self._lock:
            return dict(self._places)
