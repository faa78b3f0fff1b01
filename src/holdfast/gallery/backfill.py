"""Backfill: re-embed items of older versions by a newer one. A call after an interruption continues where it stopped.

The items that the bridge to their version is expected to serve worst come first (``Bridge.expected_errors``), then
those of versions without a bridge, the oldest first.
"""

import contextlib
import threading
from array import array
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from holdfast.bridges import Bridge
from holdfast.core.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.gallery_versions import NOTHING, Version
from holdfast.gallery.given_vectors import GivenVectors
from holdfast.gallery.reembed import RateLimit, ReembeddedBlock, ReembedProgress, image_blocks, store_blocks
from holdfast.gallery.state import GalleryState
from holdfast.gallery.vector_sources import VectorSource
from holdfast.gallery.version_models import batch_sizes

_COUNTED_TIMES = 10


@dataclass(frozen=True)
class BackfillOptions:
    """The options of ``Gallery.backfill``."""

    to: int | None = None
    rate: float | None = None
    limit: int | None = None
    vectors: VectorSource | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise HoldfastError(f"a limit is a number of items of at least 1, got {self.limit}")


@dataclass
class Backfill:
    """The progress of a backfill, and its result.

    to: the version that embeds.
    progress: counts of this call.
    share: of all items in versions up to ``to``, the share that ``to`` holds, in [0, 1].
    without_image: items that stay in their version because they have no path.
    without_vector: with given vectors, items that stay in their version because there is none of them; else None.
    """

    to: int
    progress: ReembedProgress
    share: float
    without_image: int
    without_vector: int | None = None

    def as_json(self) -> dict[str, Any]:
        progress = self.progress
        return {
            "to": self.to,
            "moved": progress.moved,
            "left": progress.left,
            "unreadable": progress.unreadable,
            "reasons": progress.reasons,
            "without_image": self.without_image,
            "without_vector": self.without_vector,
            "share": self.share,
            "seconds": progress.seconds,
            "rate": progress.rate,
            "seconds_left": progress.seconds_left,
        }


def backfill(state: GalleryState, options: BackfillOptions, on_progress: Callable[[Backfill], None]) -> Backfill:
    """Re-embed items of older versions by ``options.to``; see ``Gallery.backfill``."""
    target = state.models.version(options.to)
    if target.number == state.models.rollback_version:
        raise HoldfastError(f"version {target.number} is being rolled back; nothing can move to it")
    state.models.refuse_unreachable(target)
    rate_limit = RateLimit(options.rate, options.stop)
    progress, blocks = _blocks(state, target, options, rate_limit)
    count = _count(state.catalogue, target)
    tenths = int(_COUNTED_TIMES * count.share)
    without_vector = None if options.vectors is None else count.total - count.in_target - progress.total
    result = Backfill(target.number, progress, count.share, count.without_image, without_vector)

    def count_items() -> None:
        counted = _count(state.catalogue, target)
        result.share, result.without_image = counted.share, counted.without_image

    def after_batch(progress: ReembedProgress) -> None:
        # Items are counted exactly only at every tenth of the way; in between the share is estimated.
        nonlocal tenths
        result.share = min(1.0, (count.in_target + progress.moved) / max(1, count.total))
        result.progress = progress
        if int(_COUNTED_TIMES * result.share) > tenths:
            tenths = int(_COUNTED_TIMES * result.share)
            count_items()
        on_progress(result)

    on_progress(result)
    with contextlib.closing(blocks):
        result.progress = store_blocks(
            state, target, blocks, progress, rate_limit=rate_limit, stop=options.stop, on_progress=after_batch
        )
    count_items()
    return result


def _blocks(
    state: GalleryState, target: Version, options: BackfillOptions, rate_limit: RateLimit
) -> "tuple[ReembedProgress, Generator[ReembeddedBlock, None, None]]":
    """The counts of a backfill that begins, and its items with their new vectors."""
    size = rate_limit.batch_size(batch_sizes(None).add)
    if options.vectors is not None:
        given = GivenVectors(options.vectors, target)
        progress = ReembedProgress(given.count_waiting(state), options.limit)
        return progress, given.blocks(state, size, progress)
    if target.embeds == NOTHING:
        raise HoldfastError(
            f"version {target.number} is of vectors alone; give its vectors of items (--new-vectors, in Python vectors)"
        )
    keys = _waiting_keys(state, target)
    progress = ReembedProgress(len(keys), options.limit)
    return progress, image_blocks(state, keys, target, rate_limit, progress)


def _waiting_keys(state: GalleryState, target: Version) -> "array[int]":
    """Keys of the items of older versions that have an image, in the order in which they are re-embedded."""
    rows = state.catalogue.stream(
        "SELECT key, version FROM items WHERE version < ? AND path IS NOT NULL ORDER BY version, key", (target.number,)
    )
    older = [version for version in state.models.versions() if version.number < target.number]
    bridges = [state.models.bridge(target, version) for version in older]
    if not any(bridge is not None for bridge in bridges):
        return array("q", (key for key, _ in rows))
    waiting = np.fromiter(rows, dtype=[("key", np.int64), ("version", np.int64)])
    keys, versions = waiting["key"], waiting["version"]
    errors = np.full(len(keys), -np.inf, dtype=np.float32)
    for version, bridge in zip(older, bridges, strict=True):
        first, last = np.searchsorted(versions, (version.number, version.number + 1))
        if bridge is not None and first < last:
            errors[first:last] = _expected_errors(state, bridge, version, keys[first:last])
    return array("q", keys[np.argsort(-errors, kind="stable")].tolist())


def _expected_errors(state: GalleryState, bridge: Bridge, version: Version, keys: np.ndarray) -> np.ndarray:
    """The expected errors of each key, float32; -inf where the vector was deleted meanwhile.

    keys: ascending.
    """
    found = np.full(len(keys), -np.inf, dtype=np.float32)
    for block_keys, vectors in state.engine.scan(version.collection):
        places = np.minimum(np.searchsorted(keys, block_keys), len(keys) - 1)
        wanted = keys[places] == block_keys
        found[places[wanted]] = bridge.expected_errors(vectors[wanted])
    return found


class _Count(NamedTuple):
    """Items of versions up to a target: those the target holds, all, and those in older versions without an image."""

    in_target: int
    total: int
    without_image: int

    @property
    def share(self) -> float:
        return self.in_target / self.total if self.total else 1.0


def _count(catalogue: Catalogue, target: Version) -> _Count:
    counts = {number: count for number, count in catalogue.counts().items() if number <= target.number}
    query = "SELECT count(*) FROM items WHERE version < ? AND path IS NULL"
    ((without_image,),) = catalogue.read(query, (target.number,))
    return _Count(counts.get(target.number, 0), sum(counts.values()), without_image)
