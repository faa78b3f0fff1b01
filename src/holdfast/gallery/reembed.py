"""Re-embed items by another version, batch by batch, while searches continue.

Images are read and embedded while others may write. Then the batch is stored like any other write (see ``catalogue``):
new vectors first, then one transaction that gives them to their items, and the old vectors are deleted last. An item
that was replaced or deleted meanwhile is left alone.
"""

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.gallery.gallery_items import StoredItem
from holdfast.gallery.gallery_versions import Version
from holdfast.gallery.state import GalleryState
from holdfast.gallery.version_models import batch_sizes, prepare_image, unit_row

if TYPE_CHECKING:
    from holdfast.embedders.image_encoder import ImageEncoder

REASONS_KEPT = 20


@dataclass
class ReembedProgress:
    """Counts of items so far.

    total: items to re-embed; one call re-embeds at most ``limit`` of them.
    moved: re-embedded and on disk.
    unreadable: not re-embedded, because their images cannot be read.
    changed: replaced or deleted by others meanwhile.
    seconds: since the call began.
    reasons: id and reason of the first unreadable items.
    """

    total: int
    limit: int | None = None
    moved: int = 0
    unreadable: int = 0
    changed: int = 0
    seconds: float = 0.0
    reasons: list[dict[str, str]] = field(default_factory=list)

    def refuse(self, id: str, reason: str) -> None:
        """Count an unreadable item."""
        self.unreadable += 1
        if len(self.reasons) < REASONS_KEPT:
            self.reasons.append({"id": id, "reason": reason})

    def figures(self) -> dict[str, Any]:
        """The values of a progress line."""
        return {"moved": self.moved, "total": self.total, "rate": self.rate, "seconds_left": self.seconds_left}

    @property
    def left(self) -> int:
        return self.total - self.moved - self.unreadable - self.changed

    @property
    def rate(self) -> float:
        """Items re-embedded per second."""
        return self.moved / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        to_do = self.left if self.limit is None else min(self.left, self.limit - self.moved)
        return to_do / self.rate if self.rate else None


class ReembeddedBlock(NamedTuple):
    """Items with new vectors, to be stored in one write.

    taken: items that were looked at, those without a vector included.
    items: those with a vector.
    vectors: N x stored_dim of the target.
    """

    taken: int
    items: list[StoredItem]
    vectors: np.ndarray


def reembed(
    state: GalleryState,
    keys: Sequence[int],
    target: Version,
    *,
    rate: float | None = None,
    stop: threading.Event,
    on_progress: Callable[[ReembedProgress], None],
) -> ReembedProgress:
    """Embed the items with these keys by ``target``, in this order.

    rate: at most so many items per second; None for no limit.
    stop: ends the call after the current batch.
    on_progress: called after every batch that is on disk.
    """
    rate_limit, progress = RateLimit(rate, stop), ReembedProgress(len(keys))
    blocks = image_blocks(state, keys, target, rate_limit, progress)
    return store_blocks(state, target, blocks, progress, rate_limit=rate_limit, stop=stop, on_progress=on_progress)


def store_blocks(
    state: GalleryState,
    target: Version,
    blocks: Iterator[ReembeddedBlock],
    progress: ReembedProgress,
    *,
    rate_limit: "RateLimit",
    stop: threading.Event,
    on_progress: Callable[[ReembedProgress], None],
) -> ReembedProgress:
    """Store the vectors of each block; an item that was replaced or deleted meanwhile is left alone.

    blocks: read one by one; what they count as unreadable is in ``progress``.
    progress: its limit ends the call, and its counts are updated.
    """
    started = time.monotonic()
    while progress.moved != progress.limit and not stop.is_set():
        unreadable = progress.unreadable
        block = next(blocks, None)
        if block is None:
            break
        items, moved = block.items, 0
        if progress.limit is not None:
            items = items[: progress.limit - progress.moved]
        if items:
            with state.writing:
                moved = state.writer.store_reembedded(items, block.vectors[: len(items)], target)
                state.writer.build_due_indexes()
        beyond_limit = len(block.items) - len(items)
        progress.moved += moved
        progress.changed += block.taken - beyond_limit - moved - (progress.unreadable - unreadable)
        progress.seconds = time.monotonic() - started
        on_progress(progress)
        rate_limit.wait(block.taken)
    return progress


def image_blocks(
    state: GalleryState, keys: Sequence[int], target: Version, rate_limit: "RateLimit", progress: ReembedProgress
) -> Generator[ReembeddedBlock, None, None]:
    """The items with these keys, embedded from their images, a batch at a time and never more than the limit."""
    if not keys:
        return
    encoder, start = state.models.encoder(target), 0
    size = rate_limit.batch_size(batch_sizes(encoder).reembed)
    while start < len(keys):
        most = size if progress.limit is None else min(size, progress.limit - progress.moved)
        batch = keys[start : start + most]
        start += len(batch)
        existing, _ = state.catalogue.by_key(batch)
        found = _embed(state, encoder, target, [existing[key] for key in batch if key in existing], progress)
        yield ReembeddedBlock(len(batch), *found)


def _embed(
    state: GalleryState, encoder: "ImageEncoder", target: Version, items: list[StoredItem], progress: ReembedProgress
) -> tuple[list[StoredItem], np.ndarray]:
    """The items with readable images, and their vectors; the others are counted in ``progress``."""
    good: list[StoredItem] = []
    rows: list[np.ndarray] = []

    batch_size = encoder.batch_size
    for start in range(0, len(items), batch_size):
        opened = []
        for item in items[start : start + batch_size]:
            try:
                opened.append((item, prepare_image(encoder, item.path)))
            except HoldfastError as error:
                progress.refuse(item.id, str(error))
        if not opened:
            continue
        found = state.models.image_vectors(np.concatenate([image for _, image in opened]), target, encoder)
        for (item, _), row in zip(opened, found, strict=True):
            try:
                rows.append(unit_row(row, f"item {item.id!r}", target.number))
                good.append(item)
            except HoldfastError as error:
                progress.refuse(item.id, str(error))
    return good, np.stack(rows) if rows else np.empty((0, target.stored_dim), dtype=np.float32)


class RateLimit:
    """Waits so that at most ``rate`` items per second are done. Lost time is not made up for by a faster rate.

    rate: items per second; None for no limit.
    stop: ends the waiting.
    """

    def __init__(self, rate: float | None, stop: threading.Event) -> None:
        if rate is not None and not 0 < rate < math.inf:
            raise HoldfastError(f"a rate is a number of items a second above 0, got {rate}")
        self._rate, self._stop = rate, stop
        self._next = time.monotonic()

    def batch_size(self, largest: int) -> int:
        """At most one second's items per batch, so that a low rate is an even one."""
        return largest if self._rate is None else max(1, min(largest, int(self._rate)))

    def wait(self, done: int) -> None:
        """Wait until ``done`` / rate seconds after the last call's end."""
        if self._rate is None:
            return
        # Work that took longer than its share delays all later batches.
        self._next = max(self._next + done / self._rate, time.monotonic())
        self._stop.wait(self._next - time.monotonic())
