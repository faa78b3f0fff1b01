"""Items embedded again, batch by batch, by another version, while searches go on.

Images are read and embedded while others may write. Then one batch is stored as everything is (see ``catalogue``): the
new vectors first, one transaction that makes them their items' own, the old vectors deleted last. An item that was
replaced or deleted meanwhile is left alone.

So many items a second, and no more.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from holdfast.encoders import Encoder
from holdfast.errors import HoldfastError
from holdfast.gallery.forward_pass import images_at_once
from holdfast.gallery.items import Stored
from holdfast.gallery.models import ready, unit_row
from holdfast.gallery.state import GalleryState
from holdfast.gallery.versions import Version

REASONS_KEPT = 20


@dataclass
class Moving:
    """How far it is.

    total: items to move, of which this call moves at most ``limit``. moved: on disk. unreadable: stayed where they are.
    changed: replaced or deleted by others meanwhile. seconds: since it began; rate: items moved a second.
    """

    total: int
    limit: int | None = None
    moved: int = 0
    unreadable: int = 0
    changed: int = 0
    seconds: float = 0.0
    reasons: list[dict[str, str]] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """What a line of progress says."""
        return {"moved": self.moved, "total": self.total, "rate": self.rate, "seconds_left": self.seconds_left}

    @property
    def left(self) -> int:
        return self.total - self.moved - self.unreadable - self.changed

    @property
    def rate(self) -> float:
        return self.moved / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        to_do = self.left if self.limit is None else min(self.left, self.limit - self.moved)
        return to_do / self.rate if self.rate else None


@contextmanager
def moving_alone(parts: GalleryState, what: str) -> Iterator[None]:
    """One backfill, rollback or move to another engine at a time; a second one is refused."""
    if not parts.moving.take(what):
        raise HoldfastError(f"a {parts.moving.what or 'move'} of this gallery is under way; wait for it, or stop it")
    try:
        yield
    finally:
        parts.moving.give_back()


def move(
    parts: GalleryState,
    keys: Sequence[int],
    target: Version,
    *,
    rate: float | None = None,
    limit: int | None = None,
    stop: threading.Event,
    progress: Callable[[Moving], None],
) -> Moving:
    """Embed the items with these keys by ``target``, in this order; told after every batch that is on disk.

    Images that cannot be read leave their items where they are and are counted, the first reasons kept.
    """
    pace, state, started = Pace(rate, stop), Moving(len(keys), limit), time.monotonic()
    encoder = parts.models.encoder(target)
    size, start = pace.batch(parts.models.sizes.moved), 0
    while start < len(keys) and state.moved != limit and not stop.is_set():
        batch = keys[start : start + (size if limit is None else min(size, limit - state.moved))]
        start += len(batch)
        there, _ = parts.catalogue.by_key(batch)
        items, vectors = _embedded(parts, encoder, target, [there[key] for key in batch if key in there], state)
        moved = 0
        if items:
            with parts.writing:
                moved = parts.writer.move(items, vectors, target)
                parts.writer.index_where_due()
        state.moved += moved
        state.changed += len(batch) - len(there) + len(items) - moved
        state.seconds = time.monotonic() - started
        progress(state)
        pace.wait(len(batch))
    return state


def _embedded(
    parts: GalleryState, encoder: Encoder, target: Version, items: list[Stored], state: Moving
) -> tuple[list[Stored], np.ndarray]:
    """Those items whose images could be read, and their vectors."""
    good: list[Stored] = []
    rows: list[np.ndarray] = []

    def refuse(item: Stored, error: HoldfastError) -> None:
        state.unreadable += 1
        if len(state.reasons) < REASONS_KEPT:
            state.reasons.append({"id": item.id, "reason": str(error)})

    at_once = images_at_once(encoder, parts.models.device)
    for start in range(0, len(items), at_once):
        opened = []
        for item in items[start : start + at_once]:
            try:
                opened.append((item, ready(encoder, item.path)))
            except HoldfastError as error:
                refuse(item, error)
        if not opened:
            continue
        found = parts.models.image_vectors(torch.cat([image for _, image in opened]), target, encoder)
        for (item, _), row in zip(opened, found, strict=True):
            try:
                rows.append(unit_row(row, f"item {item.id!r}", target.number))
                good.append(item)
            except HoldfastError as error:
                refuse(item, error)
    return good, np.stack(rows) if rows else np.empty((0, target.stored_dim), dtype=np.float32)


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
