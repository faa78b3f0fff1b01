"""Bridges between the versions of a gallery. They are stored in the folder of the newer version.

``bridges/to-0001`` carries queries of that version into the space of version 1. ``bridges/from-0001`` carries vectors
of version 1, for searches by a stored item, into the space of that version.
"""

import threading
from pathlib import Path
from typing import Any

from holdfast.bridges import Bridge
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.versions import Version

BRIDGES_FOLDER = "bridges"


def bridge_to(version_folder: Path, older: int) -> Path:
    """The folder of the bridge that carries queries of a version into the space of version ``older``."""
    return version_folder / BRIDGES_FOLDER / f"to-{older:04d}"


def bridge_from(version_folder: Path, older: int) -> Path:
    """The folder of the bridge that carries vectors of version ``older`` into the space of a version."""
    return version_folder / BRIDGES_FOLDER / f"from-{older:04d}"


def bridge_record(older: int, bridge: Bridge) -> dict[str, Any]:
    """What a version's record says about its bridge to version ``older``: its number and ``Bridge.summary``."""
    return {"version": older, **bridge.summary()}


class VersionBridges:
    """The bridges of a gallery, read from its folder when first needed. Safe for many threads."""

    def __init__(self, folder: GalleryFolder) -> None:
        self._folder = folder
        self._loaded: dict[tuple[int, int], Bridge | None] = {}
        self._loading = threading.Lock()

    def between(self, source: Version, target: Version) -> Bridge | None:
        """The bridge that carries vectors of ``source`` into the space of ``target``; None if there is none."""
        pair = (source.number, target.number)
        if pair not in self._loaded:
            with self._loading:
                if pair not in self._loaded:
                    self._loaded[pair] = self._load(source, target)
        return self._loaded[pair]

    def forget(self, number: int) -> None:
        """Drop the bridges from and to a version from memory."""
        with self._loading:
            self._loaded = {pair: one for pair, one in self._loaded.items() if number not in pair}

    def _load(self, source: Version, target: Version) -> Bridge | None:
        newer, older = (source, target) if source.number > target.number else (target, source)
        if all(record["version"] != older.number for record in newer.bridges):
            return None
        place = bridge_to if newer is source else bridge_from
        return Bridge.load(place(self._folder.version(newer.number), older.number))
