"""The newest version taken out again: the one before it asks from now on and embeds its items again.

1. The version is marked as leaving: from here on the one before it embeds what is added and asked. 2. Its items move
back, batch by batch; what cannot is dropped if that was asked for. 3. The version, empty now, leaves the catalogue.
4. Searches that may still see it end, and its vectors and its model are removed. Killed before 3, the same call goes
on; after 3 what is left belongs to nobody and is removed when the gallery is opened.
"""

import os
import threading
from array import array
from collections.abc import Callable
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.moving import Moving, move
from holdfast.gallery.state import GalleryState
from holdfast.gallery.versions import Version, slots_of_kept

_DROPPED_AT_ONCE = 256


def roll_back(
    parts: GalleryState, *, drop: bool, rate: float | None, stop: threading.Event, progress: Callable[[Moving], None]
) -> dict[str, Any]:
    """Take the newest version out; see ``Gallery.rollback``."""
    with parts.writing:
        leaving, before = _leaving_and_before(parts)
        if not drop:
            _refuse_losses(parts.catalogue, leaving)
        parts.catalogue.put_settings({"leaving": leaving.number})
        parts.models.leaving = leaving.number
    query = "SELECT key FROM items WHERE version = ? AND path IS NOT NULL ORDER BY key"
    keys = array("q", (key for (key,) in parts.catalogue.read(query, (leaving.number,))))
    state = move(parts, keys, before, rate=rate, stop=stop, progress=progress)
    result = {"version": leaving.number, "newest": before.number, "moved": state.moved, "dropped": 0, "finished": False}
    if stop.is_set():
        return result
    left = [name for (name,) in parts.catalogue.read("SELECT id FROM items WHERE version = ?", (leaving.number,))]
    if left and not drop:
        why = f" ({state.reasons[0]['reason']})" if state.reasons else ""
        raise HoldfastError(
            f"{len(left)} of version {leaving.number}'s items could not be embedded again{why}; put their images back "
            "and roll back again, let drop (--drop) delete the items, or cancel (--cancel)"
        )
    for start in range(0, len(left), _DROPPED_AT_ONCE):
        with parts.writing:
            result["dropped"] += len(parts.writer.remove(left[start : start + _DROPPED_AT_ONCE]))
    _take_out(parts, leaving)
    return {**result, "finished": True}


def cancel(parts: GalleryState) -> int:
    """Let the version that is leaving stay, as the newest; what has moved back stays where it is. Its number."""
    with parts.writing:
        number = parts.models.leaving
        if number is None:
            raise HoldfastError("no version is being rolled back; there is nothing to cancel")
        parts.catalogue.put_settings({"leaving": None})
        parts.models.leaving = None
    return number


def _leaving_and_before(parts: GalleryState) -> tuple[Version, Version]:
    versions = parts.models.versions()
    if len(versions) < 2:
        raise HoldfastError("the gallery has one version; there is none before it to roll back to")
    return versions[-1], versions[-2]


def _refuse_losses(catalogue: Catalogue, leaving: Version) -> None:
    """Before anything is changed: items that no other version can embed, for their images are not at hand."""
    rows = catalogue.read("SELECT path FROM items WHERE version = ?", (leaving.number,))
    lost = sum(path is None or not os.path.exists(path) for (path,) in rows)
    if lost:
        raise HoldfastError(
            f"{lost} of version {leaving.number}'s {len(rows)} items have no image at hand to embed again and would be "
            "lost; put the images back, or let drop (--drop) delete those items"
        )


def _take_out(parts: GalleryState, leaving: Version) -> None:
    with parts.writing:
        parts.writer.sweep()
        remaining = [one for one in parts.models.versions() if one.number != leaving.number]
        slots = slots_of_kept([parts.folder.version(one.number) for one in remaining])
        settings = {
            "leaving": None,
            # Numbers are never used again: a hit that said "version 3" must not come to mean another model.
            "last_version": leaving.number,
            "slots": None if slots is None else slots.to_json(),
        }
        parts.catalogue.remove_version(leaving.number, settings)
        parts.models.dismiss(leaving.number)
    parts.searches.wait()
    with parts.writing:
        parts.engine.drop(leaving.collection)
        parts.models.forget(leaving.number)
