"""Older items embedded again by a newer version, in the background; killed anywhere, it goes on where it was.

Whether a gallery finds what it should: labelled items asked by their images, each with itself left out.
"""

import contextlib
import threading
import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from holdfast.errors import HoldfastError, unknown_name
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.forward_pass import images_at_once
from holdfast.gallery.models import ready, unit_row
from holdfast.gallery.moving import Moving, move
from holdfast.gallery.searching import Question, search_all
from holdfast.gallery.state import GalleryState
from holdfast.gallery.versions import Version

Order = Literal["oldest", "most-hit"]
"""oldest: the oldest version first, in each what was stored first; most-hit: what was most often a hit first."""

_ORDERS = {"oldest": "version, key", "most-hit": "coalesce(count, 0) DESC, version, key"}
_POINTS = 10
_RECORD = "backfill"


@dataclass
class Backfill:
    """What a backfill has done so far.

    moving: this call's items. share: of all items in versions up to ``to``, how many ``to`` holds, in [0, 1].
    without_image: items that stay because they have no path. accuracy: (share, nearest-neighbour accuracy) at every
    tenth of the way, those of calls before this one included; empty without labels.
    """

    to: int
    order: Order
    moving: Moving
    share: float
    without_image: int
    accuracy: list[tuple[float, float]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        moving = self.moving
        return {
            "to": self.to,
            "order": self.order,
            "moved": moving.moved,
            "left": moving.left,
            "unreadable": moving.unreadable,
            "reasons": moving.reasons,
            "without_image": self.without_image,
            "share": self.share,
            "seconds": moving.seconds,
            "rate": moving.rate,
            "seconds_left": moving.seconds_left,
            "accuracy": [{"share": share, "accuracy": value} for share, value in self.accuracy],
        }


def backfill(
    parts: GalleryState,
    to: int | None,
    order: Order,
    rate: float | None,
    limit: int | None,
    probes: int,
    stop: threading.Event,
    progress: Callable[[Backfill], None],
) -> Backfill:
    """Move items of older versions to ``to``; see ``Gallery.backfill``."""
    if order not in get_args(Order):
        raise unknown_name("order", order, get_args(Order))
    if limit is not None and limit < 1:
        raise HoldfastError(f"a limit is a number of items of at least 1, got {limit}")
    target = parts.models.version(to)
    if target.number == parts.models.leaving:
        raise HoldfastError(f"version {target.number} is being rolled back; nothing can move to it")
    keys = waiting(parts.catalogue, target, order)
    probed = Probes(parts, parts.models.newest(), probes) if probes and keys else None
    curve = _curve_so_far(parts.catalogue, target)
    count = _count(parts.catalogue, target)
    state = Backfill(target.number, order, Moving(len(keys), limit), count.share, count.without_image, curve)

    def measure() -> None:
        counted = _count(parts.catalogue, target)
        state.share, state.without_image = counted.share, counted.without_image
        if probed is not None and probed.probes and (not curve or state.share != curve[-1][0]):
            curve.append((state.share, probed.accuracy()))
        parts.catalogue.put_settings({_RECORD: {"to": target.number, "order": order, "accuracy": curve}})

    def tell(moving: Moving) -> None:
        # Counting every item is for the points of the curve; in between the share is carried on.
        state.share = min(1.0, (count.there + moving.moved) / max(1, count.everything))
        state.moving = moving
        if curve and int(_POINTS * state.share) > int(_POINTS * curve[-1][0]):
            measure()
        progress(state)

    measure()
    progress(state)
    state.moving = move(parts, keys, target, rate=rate, limit=limit, stop=stop, progress=tell)
    measure()
    return state


def waiting(catalogue: Catalogue, target: Version, order: Order) -> "array[int]":
    """Keys of the items with an image that older versions hold, in the order they are to be moved."""
    rows = catalogue.read(
        "SELECT key FROM items LEFT JOIN hits USING (id) "
        f"WHERE version < ? AND path IS NOT NULL ORDER BY {_ORDERS[order]}",
        (target.number,),
    )
    return array("q", (key for (key,) in rows))


def backfill_record(parts: GalleryState) -> dict[str, Any] | None:
    """The backfill that runs or ran last: to, order, share, accuracy, running; None before there was any."""
    record: dict[str, Any] | None = parts.catalogue.setting(_RECORD)
    known = {one.number: one for one in parts.models.versions()}
    if record is None or record["to"] not in known:
        return None
    count = _count(parts.catalogue, known[record["to"]])
    curve = [{"share": at, "accuracy": value} for at, value in record["accuracy"]]
    return {
        **record,
        "accuracy": curve,
        "share": count.share,
        "without_image": count.without_image,
        "running": parts.moving.what == "backfill",
    }


class _Count(NamedTuple):
    """Items of versions up to a target: those it holds, all, and those it cannot have because they have no image."""

    there: int
    everything: int
    without_image: int

    @property
    def share(self) -> float:
        return self.there / self.everything if self.everything else 1.0


def _count(catalogue: Catalogue, target: Version) -> _Count:
    counts = {number: count for number, count in catalogue.counts().items() if number <= target.number}
    query = "SELECT count(*) FROM items WHERE version < ? AND path IS NULL"
    ((without_image,),) = catalogue.read(query, (target.number,))
    return _Count(counts.get(target.number, 0), sum(counts.values()), without_image)


def _curve_so_far(catalogue: Catalogue, target: Version) -> list[tuple[float, float]]:
    """What calls before this one measured, where they were led to the same version."""
    record = catalogue.setting(_RECORD)
    if record is None or record["to"] != target.number:
        return []
    return [(share, value) for share, value in record["accuracy"]]


MOST_PROBES = 200
_LOOKED_AT = 10


@dataclass(frozen=True)
class Probe:
    id: str
    label: str
    vector: np.ndarray


class Probes:
    """Up to 200 items with a label that others have too and an image that can be read, embedded by one version.

    Which ones is a matter of their ids alone, so a backfill that was killed and goes on asks the same questions.
    """

    def __init__(self, parts: GalleryState, source: Version, most: int = MOST_PROBES) -> None:
        self._parts, self._source = parts, source
        self.probes = self._embedded(most)

    def accuracy(self) -> float:
        """Share of probes whose nearest labelled item, itself left out, has their label; in [0, 1], NaN without any.

        An item with no labelled one among its ten nearest counts as wrong.
        """
        right = [self._nearest_label(probe) == probe.label for probe in self.probes]
        return sum(right) / len(right) if right else float("nan")

    def _nearest_label(self, probe: Probe) -> str | None:
        parts = self._parts
        question = Question(probe.vector, self._source, _LOOKED_AT + 1, None, exact=False)
        with parts.searches.one():
            hits = search_all(parts.engine, parts.catalogue, parts.models, question)
        return next((hit.label for hit in hits if hit.id != probe.id and hit.label is not None), None)

    def _embedded(self, most: int) -> list[Probe]:
        parts = self._parts
        found: list[Probe] = []
        rows = parts.catalogue.read(
            "SELECT id, label, path FROM items WHERE path IS NOT NULL AND label IN "
            "(SELECT label FROM items WHERE label IS NOT NULL GROUP BY label HAVING count(*) > 1)"
        )
        rows.sort(key=lambda row: (zlib.crc32(row[0].encode()), row[0]))
        encoder = parts.models.encoder(self._source)
        at_once, start = images_at_once(encoder, parts.models.device), 0
        while start < len(rows) and len(found) < most:
            # No more than are wanted, so that which ones are taken does not depend on the device.
            some = rows[start : start + min(at_once, most - len(found))]
            start += len(some)
            opened = []
            for row in some:
                with contextlib.suppress(HoldfastError):
                    opened.append((row, ready(encoder, row[2])))
            if not opened:
                continue
            vectors = parts.models.image_vectors(torch.cat([image for _, image in opened]), self._source, encoder)
            for (row, _), vector in zip(opened, vectors, strict=True):
                with contextlib.suppress(HoldfastError):
                    found.append(Probe(row[0], row[1], unit_row(vector, "probe", self._source.number)))
        return found
