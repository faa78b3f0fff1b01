"""So many items a second, and no more."""

import threading
import time

from holdfast.errors import HoldfastError


class Pace:
    """Holds back whoever reports what was done; time that was lost is not caught up by a rush.

    rate: items a second, None for as fast as it goes. stop: ends the waiting, and whoever waits looks at it.
    """

    def __init__(self, rate: float | None, stop: threading.Event) -> None:
        if rate is not None and not rate > 0:
            raise HoldfastError(f"a rate is a number of items a second above 0, got {rate}")
        self._rate, self._stop = rate, stop
        self._free = time.monotonic()

    def batch(self, largest: int) -> int:
        """At most a second's worth at once, so that a slow pace is an even one."""
        return largest if self._rate is None else max(1, min(largest, int(self._rate)))

    def wait(self, done: int) -> None:
        """Until the items that were just done may have been: ``done`` / rate seconds after those before them."""
        if self._rate is None:
            return
        # Work that took longer than its share moves the clock on: the seconds over it are not owed.
        self._free = max(self._free + done / self._rate, time.monotonic())
        self._stop.wait(self._free - time.monotonic())
