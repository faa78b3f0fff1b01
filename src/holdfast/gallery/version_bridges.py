"""Bridges between the versions of a gallery. They are stored in the folder of the newer version.

``bridges/to-0001`` carries queries of that version into the space of version 1. ``bridges/from-0001`` carries vectors
of version 1, for searches by a stored item, into the space of that version.

The catalogue keeps the hashes of their files. Whoever changes a bridge can change everything in its folder, so that a
hash in the folder would not show it.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.bridges import NONE, Bridge
from holdfast.bridges.bridge import BRIDGE_FILES
from holdfast.bridges.maps import LinearMap, Local
from holdfast.core.checksums import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.gallery_versions import Version
from holdfast.vectors.lengths import unit

BRIDGES_FOLDER = "bridges"


def bridge_to(version_folder: Path, older: int) -> Path:
    """The folder of the bridge that carries queries of a version into the space of version ``older``."""
    return version_folder / BRIDGES_FOLDER / f"to-{older:04d}"


def bridge_from(version_folder: Path, older: int) -> Path:
    """The folder of the bridge that carries vectors of version ``older`` into the space of a version."""
    return version_folder / BRIDGES_FOLDER / f"from-{older:04d}"


def bridge_record(older: int, bridge: Bridge, version_folder: Path) -> dict[str, Any]:
    """What a version's record says about its bridge to version ``older``.

    Its number, ``Bridge.summary``, and the hashes of the saved files of this bridge and of the one from ``older``.
    """
    places = (bridge_to(version_folder, older), bridge_from(version_folder, older))
    sha256 = {place.name: _hashes(place) for place in places if place.exists()}
    return {"version": older, **bridge.summary(), "sha256": sha256}


def _hashes(folder: Path) -> list[str]:
    return [sha256_of(folder / name) for name in BRIDGE_FILES]


_INVERSE_RIDGE = 0.1
"""Of the mean diagonal: a plain inverse would magnify the directions that the pairs say little about."""


def reversed_bridge(bridge: Bridge) -> Bridge:
    """A bridge the other way, of a ready bridge without its pairs.

    A matrix is inverted with a ridge, and the scale is kept. A local bridge holds its pairs: they are fitted again.
    """
    models = {"new": bridge.models.get("old", ""), "old": bridge.models.get("new", "")}
    if isinstance(bridge.map, Local):
        old = bridge.map.residuals + unit(bridge.map.rotation(bridge.map.anchors.copy()))
        return Bridge.fit(new=old, old=bridge.map.anchors, kind=bridge.kind, options=bridge.options, models=models)
    back = None
    if isinstance(bridge.map, LinearMap):
        weight = bridge.map.weight.astype(np.float64)
        gram = weight.T @ weight
        inverse = np.linalg.solve(gram + _INVERSE_RIDGE * gram.trace() / len(gram) * np.eye(len(gram)), weight.T)
        back = type(bridge.map)(inverse.astype(np.float32), (-bridge.map.bias @ inverse).astype(np.float32))
    changed: dict[str, Any] = {"dims": bridge.dims[::-1], "map": back, "models": models, "fitted": bridge.fitted[:0]}
    return replace(bridge, error_weights=np.zeros(bridge.dims[0] + 1, dtype=np.float32), **changed)


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

    def map_query(self, query: np.ndarray, source: Version, targets: Sequence[Version]) -> dict[int, np.ndarray]:
        """A unit query of ``source`` in the space of each target that has a bridge with a map, by its number."""
        bridges = {target.number: self.between(source, target) for target in targets if target.number != source.number}
        return {
            number: bridge.one(query)
            for number, bridge in bridges.items()
            if bridge is not None and bridge.kind != NONE
        }

    def forget(self, number: int) -> None:
        """Drop the bridges from and to a version from memory."""
        with self._loading:
            self._loaded = {pair: one for pair, one in self._loaded.items() if number not in pair}

    def _load(self, source: Version, target: Version) -> Bridge | None:
        newer, older = (source, target) if source.number > target.number else (target, source)
        record = next((one for one in newer.bridges if one["version"] == older.number), None)
        if record is None:
            return None
        place = (bridge_to if newer is source else bridge_from)(self._folder.version(newer.number), older.number)
        if record["sha256"].get(place.name) != _hashes(place):
            raise HoldfastError(
                f"{place}: changed since it was fitted (sha256 differs); restore it from a backup, or register the "
                f"model of version {newer.number} again after a rollback"
            )
        return Bridge.load(place)
