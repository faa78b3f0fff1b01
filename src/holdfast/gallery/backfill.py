"""Backfill: re-embed items of older versions by a newer one. A call after an interruption continues where it stopped.

On the way, accuracy is measured on labelled items that are searched by their images.
"""

import contextlib
import heapq
import itertools
import threading
import zlib
from array import array
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from holdfast.bridges import Bridge
from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.gallery_versions import NOTHING, Version
from holdfast.gallery.given_vectors import GivenVectors
from holdfast.gallery.reembed import RateLimit, ReembeddedBlock, ReembedProgress, image_blocks, ray_blocks, store_blocks
from holdfast.gallery.searching import SearchArguments, search_versions
from holdfast.gallery.state import GalleryState
from holdfast.gallery.vector_sources import VectorSource
from holdfast.gallery.version_models import batch_sizes, prepare_image, unit_row

Order = Literal["oldest", "most-hit", "uncertain"]
"""oldest: the oldest version first, and in each version the items stored first.

most-hit: the most frequent hits first.
uncertain: the items first that bridged searches are expected to show or miss wrongly most often
(``Bridge.expected_errors``). Versions without a bridge come last, the oldest first.
"""

MOST_PROBES = 200
_OLDEST = "version, key"
_SQL_ORDERS = {"oldest": _OLDEST, "most-hit": f"coalesce(count, 0) DESC, {_OLDEST}", "uncertain": _OLDEST}
_CURVE_POINTS = 10
_SETTING = "backfill"


@dataclass(frozen=True)
class BackfillOptions:
    """The options of ``Gallery.backfill`` and ``Gallery.backfill_on_ray``."""

    to: int | None = None
    order: Order = "oldest"
    rate: float | None = None
    limit: int | None = None
    probes: int = MOST_PROBES
    stop: threading.Event = field(default_factory=threading.Event)
    vectors: VectorSource | None = None
    ray: str | None = None

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise unknown_name("order", self.order, get_args(Order))
        if self.limit is not None and self.limit < 1:
            raise HoldfastError(f"a limit is a number of items of at least 1, got {self.limit}")
        if self.vectors is not None and self.order != "oldest":
            raise HoldfastError(f"order {self.order!r}: given vectors move in their own order; leave it out")


@dataclass
class Backfill:
    """The progress of a backfill, and its result.

    to: the version that embeds.
    order: the order of items.
    progress: counts of this call.
    share: of all items in versions up to ``to``, the share that ``to`` holds, in [0, 1].
    without_image: items that stay in their version because they have no path.
    accuracy: (share, nearest-neighbour accuracy) at every tenth of the way, earlier calls included; empty without
        labels.
    without_vector: with given vectors, items that stay in their version because there is none of them; else None.
    """

    to: int
    order: Order
    progress: ReembedProgress
    share: float
    without_image: int
    accuracy: list[tuple[float, float]] = field(default_factory=list)
    without_vector: int | None = None

    def as_json(self) -> dict[str, Any]:
        progress = self.progress
        return {
            "to": self.to,
            "order": self.order,
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
            "accuracy": [{"share": share, "accuracy": value} for share, value in self.accuracy],
        }


def backfill(state: GalleryState, options: BackfillOptions, on_progress: Callable[[Backfill], None]) -> Backfill:
    """Re-embed items of older versions by ``options.to``; see ``Gallery.backfill``."""
    target = state.models.version(options.to)
    if target.number == state.models.rollback_version:
        raise HoldfastError(f"version {target.number} is being rolled back; nothing can move to it")
    state.models.refuse_unreachable(target)
    rate_limit = RateLimit(options.rate, options.stop)
    progress, blocks = _blocks(state, target, options, rate_limit)
    probes = None
    if options.probes and progress.total:
        probes = AccuracyProbes(state, state.models.newest(), options.probes)
    curve = _earlier_curve(state.catalogue, target)
    count = _count(state.catalogue, target)
    tenths = int(_CURVE_POINTS * count.share)
    result = Backfill(
        target.number,
        options.order,
        progress,
        count.share,
        count.without_image,
        curve,
        None if options.vectors is None else count.total - count.in_target - progress.total,
    )

    def measure() -> None:
        counted = _count(state.catalogue, target)
        result.share, result.without_image = counted.share, counted.without_image
        if probes is not None and probes.probes and (not curve or result.share != curve[-1][0]):
            curve.append((result.share, probes.accuracy()))
        state.catalogue.put_settings({_SETTING: {"to": target.number, "order": options.order, "accuracy": curve}})

    def after_batch(progress: ReembedProgress) -> None:
        # Items are counted exactly only at every tenth of the way; in between the share is estimated.
        nonlocal tenths
        result.share = min(1.0, (count.in_target + progress.moved) / max(1, count.total))
        result.progress = progress
        if int(_CURVE_POINTS * result.share) > tenths:
            tenths = int(_CURVE_POINTS * result.share)
            measure()
        on_progress(result)

    measure()
    on_progress(result)
    with contextlib.closing(blocks):
        result.progress = store_blocks(
            state, target, blocks, progress, rate_limit=rate_limit, stop=options.stop, on_progress=after_batch
        )
    measure()
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
    keys = _waiting_keys(state, target, options.order)
    progress = ReembedProgress(len(keys), options.limit)
    if options.ray is None:
        return progress, image_blocks(state, keys, target, rate_limit, progress)
    return progress, ray_blocks(state, keys, target, options.ray, size, progress)


def backfill_record(state: GalleryState) -> dict[str, Any] | None:
    """The backfill that runs or ran last: to, order, share, accuracy, running; None if there was none."""
    record: dict[str, Any] | None = state.catalogue.setting(_SETTING)
    known = {one.number: one for one in state.models.versions()}
    if record is None or record["to"] not in known:
        return None
    count = _count(state.catalogue, known[record["to"]])
    curve = [{"share": share, "accuracy": value} for share, value in record["accuracy"]]
    return {
        **record,
        "accuracy": curve,
        "share": count.share,
        "without_image": count.without_image,
        "running": state.maintenance.held_for == "backfill",
    }


def _waiting_keys(state: GalleryState, target: Version, order: Order) -> "array[int]":
    """Keys of the items of older versions that have an image, in the order in which they are re-embedded."""
    rows = state.catalogue.stream(
        "SELECT key, version FROM items LEFT JOIN hits USING (id) "
        f"WHERE version < ? AND path IS NOT NULL ORDER BY {_SQL_ORDERS[order]}",
        (target.number,),
    )
    if order == "uncertain":
        return _by_uncertainty(state, target, rows)
    return array("q", (key for key, _ in rows))


def _by_uncertainty(state: GalleryState, target: Version, rows: Iterator[tuple[int, int]]) -> "array[int]":
    """The keys with the most expected errors first, then those of versions without a bridge, oldest first.

    rows: (key, version) of the waiting items, by version, then by key.
    """
    older = [one for one in state.models.versions() if one.number < target.number]
    bridges = {one.number: bridge for one in older if (bridge := state.models.bridge(target, one)) is not None}
    waiting = np.fromiter(rows, dtype=[("key", np.int64), ("version", np.int64)])
    keys, versions = waiting["key"], waiting["version"]
    if len(keys) and not bridges:
        raise HoldfastError(
            f"version {target.number} has no bridge to an older version, so it is unknown which items are served "
            "worst; use the order 'oldest' or 'most-hit'"
        )
    errors = np.full(len(keys), -np.inf, dtype=np.float32)
    for version in older:
        first, last = np.searchsorted(versions, (version.number, version.number + 1))
        if version.number in bridges and first < last:
            errors[first:last] = _expected_errors(state, bridges[version.number], version, keys[first:last])
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


def _earlier_curve(catalogue: Catalogue, target: Version) -> list[tuple[float, float]]:
    """The points that earlier calls with the same target measured."""
    record = catalogue.setting(_SETTING)
    if record is None or record["to"] != target.number:
        return []
    return [(share, value) for share, value in record["accuracy"]]


_NEIGHBOURS = 10
_CANDIDATES = (
    "SELECT id, label, path FROM items WHERE path IS NOT NULL AND label IN "
    "(SELECT label FROM items WHERE label IS NOT NULL GROUP BY label HAVING count(*) > 1)"
)


@dataclass(frozen=True)
class Probe:
    id: str
    label: str
    vector: np.ndarray


class AccuracyProbes:
    """Up to ``most`` items with a readable image and a label that other items have too, embedded by one version.

    The choice depends on the ids alone, so a backfill that continues after a kill uses the same probes.
    """

    def __init__(self, state: GalleryState, source: Version, most: int = MOST_PROBES) -> None:
        self._state, self._source = state, source
        self.probes = self._embed(most)

    def accuracy(self) -> float:
        """Share of probes with the label of their nearest labelled item, the probe excluded; in [0, 1], NaN if none.

        A probe without a labelled item among its ten nearest counts as wrong.
        """
        right = [self._nearest_label(probe) == probe.label for probe in self.probes]
        return sum(right) / len(right) if right else float("nan")

    def _nearest_label(self, probe: Probe) -> str | None:
        arguments = SearchArguments(probe.vector, self._source, _NEIGHBOURS + 1)
        with self._state.searches.running():
            hits = search_versions(self._state, arguments)
        return next((hit.label for hit in hits if hit.id != probe.id and hit.label is not None), None)

    def _embed(self, most: int) -> list[Probe]:
        state = self._state
        found: list[Probe] = []
        if not self._source.embeds_here:
            return []
        rows = self._candidates(4 * most)
        if (first := next(rows, None)) is None:  # nothing to measure with: the model is not loaded for it
            return []
        rows = itertools.chain([first], rows)
        encoder = state.models.encoder(self._source)
        batch_size = encoder.batch_size
        # Never more than are still needed, so that the choice does not depend on the device's batch size.
        while len(found) < most and (batch := list(itertools.islice(rows, min(batch_size, most - len(found))))):
            opened = []
            for row in batch:
                with contextlib.suppress(HoldfastError):
                    opened.append((row, prepare_image(encoder, row[2])))
            if not opened:
                continue
            vectors = state.models.image_vectors(np.concatenate([image for _, image in opened]), self._source, encoder)
            for (row, _), vector in zip(opened, vectors, strict=True):
                with contextlib.suppress(HoldfastError):
                    found.append(Probe(row[0], row[1], unit_row(vector, "probe", self._source.number)))
        return found

    def _candidates(self, count: int) -> Iterator[tuple[str, str, str]]:
        """Id, label and path of the items that can be probes, in the order of the hashes of their ids.

        count: so many are read at first, and more only if they are needed. A list of all items of a large gallery would
            take gigabytes, and no other thread runs while it is sorted.
        """
        last: tuple[int, str] = (-1, "")
        while True:
            rows = ((zlib.crc32(row[0].encode()), *row) for row in self._state.catalogue.stream(_CANDIDATES))
            following = heapq.nsmallest(count, (row for row in rows if row[:2] > last))
            for number, *row in following:
                last = number, row[0]
                yield tuple(row)
            if len(following) < count:
                return
            count *= 8
