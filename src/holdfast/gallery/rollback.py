"""Rollback: remove the newest version; the version before it embeds queries again and re-embeds its items.

1. The version is marked for removal: from here on the version before it embeds new items and queries. 2. Its items are
re-embedded, batch by batch; with ``drop`` those that cannot be are deleted. 3. The version, now empty, is removed from
the catalogue. 4. Once running searches have ended, its vectors and its model are deleted. After a kill before step 3
the same call continues; after step 3 the rest is deleted when the gallery is opened.
"""

import os
import threading
from array import array
from collections.abc import Callable
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.gallery_versions import Version
from holdfast.gallery.reembed import ReembedProgress, reembed
from holdfast.gallery.state import GalleryState

_DELETE_BATCH = 256


def roll_back(
    state: GalleryState,
    *,
    drop: bool,
    rate: float | None,
    stop: threading.Event,
    on_progress: Callable[[ReembedProgress], None],
) -> dict[str, Any]:
    """Remove the newest version; see ``Gallery.rollback``."""
    # Looking for many images takes long. Writers wait only for those of items that are added meanwhile.
    looked_at, newest = -1, state.models.versions()[-1]
    if not drop and len(state.models.versions()) > 1:
        looked_at = _refuse_losses(state.catalogue, newest)
    with state.writing:
        versions = state.models.versions()
        if len(versions) < 2:
            raise HoldfastError("the gallery has one version; there is none before it to roll back to")
        removed, before = versions[-1], versions[-2]
        if not drop:
            _refuse_losses(state.catalogue, removed, after=looked_at if removed == newest else -1)
        state.catalogue.put_settings({"leaving": removed.number})
        state.models.rollback_version = removed.number
    query = "SELECT key FROM items WHERE version = ? AND path IS NOT NULL ORDER BY key"
    keys = array("q", (key for (key,) in state.catalogue.stream(query, (removed.number,))))
    done = reembed(state, keys, before, rate=rate, stop=stop, on_progress=on_progress)
    result = {"version": removed.number, "newest": before.number, "moved": done.moved, "dropped": 0, "finished": False}
    if stop.is_set():
        return result
    left = [id for (id,) in state.catalogue.read("SELECT id FROM items WHERE version = ?", (removed.number,))]
    if left and not drop:
        why = f" ({done.reasons[0]['reason']})" if done.reasons else ""
        raise HoldfastError(
            f"{len(left)} of version {removed.number}'s items could not be embedded again{why}; put their images back "
            "and roll back again, let drop (--drop) delete the items, or cancel (--cancel)"
        )
    for start in range(0, len(left), _DELETE_BATCH):
        with state.writing:
            result["dropped"] += len(state.writer.remove(left[start : start + _DELETE_BATCH]))
    _remove_version(state, removed)
    return {**result, "finished": True}


def cancel_rollback(state: GalleryState) -> int:
    """Keep the version that is being removed, as the newest; its number. Items already re-embedded stay so."""
    with state.writing:
        number = state.models.rollback_version
        if number is None:
            raise HoldfastError("no version is being rolled back; there is nothing to cancel")
        state.catalogue.put_settings({"leaving": None})
        state.models.rollback_version = None
    return number


def _refuse_losses(catalogue: Catalogue, removed: Version, *, after: int = -1) -> int:
    """Refuse, before anything is changed, if items have no image for another version to embed.

    after: only items with larger keys are looked at. Keys of new and of replaced items are larger than all before.
    Returns the largest key.
    """
    lost, last = 0, after
    query = "SELECT key, path FROM items WHERE version = ? AND key > ?"
    for key, path in catalogue.stream(query, (removed.number, after)):
        lost += path is None or not os.path.isfile(path)
        last = max(last, key)
    if lost:
        raise HoldfastError(
            f"{lost} of version {removed.number}'s {catalogue.counts()[removed.number]} items have no image at hand to "
            "embed again and would be lost; put the images back, or let drop (--drop) delete those items"
        )
    return last


def _remove_version(state: GalleryState, removed: Version) -> None:
    with state.writing:
        state.writer.delete_unowned()
        # Numbers are never reused: "version 3" in an earlier hit must not come to mean another model.
        state.catalogue.remove_version(removed.number, {"leaving": None, "last_version": removed.number})
        state.models.remove_version(removed.number)
    state.searches.wait()
    with state.writing:
        state.engine.drop(removed.collection)
        state.models.delete_model(removed.number)
