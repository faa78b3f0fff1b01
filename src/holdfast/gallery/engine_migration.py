"""Migrate a gallery's vectors to another engine (``Gallery.move``), while no other process has the gallery open.

1. The catalogue records the target. 2. Every collection is copied by ascending key; the catalogue records the last key
after each block. 3. The target builds its indexes. 4. What has changed since an earlier call copied it is repeated, and
both engines are read and compared. 5. One transaction makes the target the gallery's engine and marks the old one for
removal. 6. The old engine's collections are dropped. After a kill before step 5 the gallery is on its old engine, and
the same call continues; after step 5 it is on the new one.
"""

import contextlib
import hashlib
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.engines import open_engine
from holdfast.gallery.engines.engine import EMBEDDED, Engine, EngineAddress
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.gallery_versions import Version
from holdfast.gallery.state import GalleryState

BLOCK = 1000


@dataclass(frozen=True)
class MigrationOptions:
    """keep: do not drop the vectors on the old engine.

    given: what the user asked for by name, of namespace, shards and replicas.
    stop: ends the migration after the current block, with an error.
    on_progress: called with the number of vectors of each copied block.
    """

    keep: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    on_progress: Callable[[int], None] = lambda copied: None


def migrate(state: GalleryState, wanted: EngineAddress, options: MigrationOptions) -> dict[str, Any]:
    """Migrate to the engine at ``wanted``; its address, and count and checksum of each collection.

    The caller closes the gallery afterwards: it still uses the old engine.
    """
    address, target = _open_target(state, wanted, options.given)
    before = current_address(state.catalogue)
    with contextlib.closing(target):
        for version in state.models.versions():
            _copy(state, version, target, options)
            target.build_index(version.collection)
        state.writer.delete_unowned()
        checksums = _complete_and_compare(state, target)
    retired = None if options.keep else {"url": before.url, **before.options}
    changed = {"engine": address.url, "place": address.options, "move": None, "retired": retired}
    state.catalogue.put_settings(changed)
    if not options.keep:
        with contextlib.suppress(HoldfastError):  # its server cannot be reached: tried again at the next opening
            _drop_all(state.engine)
            state.catalogue.put_settings({"retired": None})
    rows = {name: {"count": len(one.keys), "sha256": one.sha256} for name, one in checksums.items()}
    return {"from": before.url, "engine": address.url, **address.options, "collections": rows}


def current_address(catalogue: Catalogue) -> EngineAddress:
    """The address of the gallery's engine."""
    return EngineAddress(catalogue.setting("engine"), **(catalogue.setting("place") or {}))


def open_current_engine(folder: GalleryFolder, catalogue: Catalogue) -> Engine:
    """Open the gallery's engine. An old engine that a killed migration left behind is dropped first."""
    retired = catalogue.setting("retired")
    if retired is not None:
        catalogue.put_settings({"retired": None})  # tried once: its server may be gone permanently
        _drop_all_at(EngineAddress(**retired), folder, catalogue)
    engine = _open_at(current_address(catalogue), folder, catalogue)
    try:
        _refuse_old_catalogue(folder, catalogue, engine)
    except BaseException:
        engine.close()
        raise
    return engine


def _refuse_old_catalogue(folder: GalleryFolder, catalogue: Catalogue, engine: Engine) -> None:
    """Refuse a copy of a gallery's folder if the vectors on the server were changed by another copy since.

    It would use keys a second time, and so replace vectors of the other copy's items. Every opening has a generation
    of its own, which the engine stores with the first write. The catalogue records it before, so that the stored one
    is one of its last two. Copies that were made since that write have the same generation: then keys decide.
    """
    address, generations = current_address(catalogue), catalogue.setting("generations", [])
    if address.url == EMBEDDED:  # the vectors are in the folder
        return
    following = secrets.token_hex(8)
    stored, last_key = engine.claim(following), catalogue.setting("next_key", 1) - 1
    unknown = [one for one in engine.collections() if next(engine.scan(one, block=1, after=last_key), None) is not None]
    if unknown or (stored is not None and stored not in generations):
        raise HoldfastError(
            f"{folder.path}: older than its vectors ({address.url}, {address.namespace}), which another copy of this "
            "folder has changed since; use that copy, or restore the vectors from a backup of the time of this one"
        )
    catalogue.put_settings({"generations": [stored, following]})


@dataclass(frozen=True)
class CollectionChecksum:
    """keys: ascending, int64. sha256: over each key (8 bytes) and its vector (float32), little-endian, by key."""

    keys: np.ndarray
    sha256: str

    def same(self, other: "CollectionChecksum") -> bool:
        return len(self.keys) == len(other.keys) and self.sha256 == other.sha256

    def missing(self, other: "CollectionChecksum") -> list[int]:
        """The keys that only ``other`` has."""
        found: list[int] = np.setdiff1d(other.keys, self.keys, assume_unique=True).tolist()
        return found


def collection_checksum(engine: Engine, collection: str) -> CollectionChecksum:
    """Read a whole collection and compute its checksum, which is the same on every engine."""
    digest, blocks = hashlib.sha256(), [np.zeros(0, dtype=np.int64)]
    for keys, vectors in engine.scan(collection):
        rows = np.empty(len(keys), dtype=[("key", "<i8"), ("vector", "<f4", vectors.shape[1:])])
        rows["key"], rows["vector"] = keys, vectors
        digest.update(rows.tobytes())  # row by row, so that block sizes do not matter
        blocks.append(keys)
    return CollectionChecksum(np.concatenate(blocks), digest.hexdigest())


def _open_target(state: GalleryState, wanted: EngineAddress, given: Mapping[str, Any]) -> tuple[EngineAddress, Engine]:
    """Address and engine of an unfinished migration to the same URL, or of a new one, which is then recorded.

    given: as in ``MigrationOptions``; refused if the unfinished migration has another value.
    """
    catalogue = state.catalogue
    here, unfinished = current_address(catalogue), catalogue.setting("move")
    if wanted.url == here.url == EMBEDDED:
        raise HoldfastError("the gallery is on the embedded engine already")
    if (wanted.url, wanted.namespace) == (here.url, here.namespace):
        raise HoldfastError(f"the gallery is at {here.url} in the namespace {here.namespace} already")
    if unfinished is not None:
        pending = EngineAddress(unfinished["url"], **unfinished["place"])
        if pending.url == wanted.url:
            for name, value in given.items():
                if pending.options[name] != value:
                    raise HoldfastError(
                        f"an unfinished move to {pending.url} has {name} {pending.options[name]}, not {value}; leave "
                        f"{name} out to resume it"
                    )
            return pending, _open_at(pending, state.folder, catalogue)
        _drop_all_at(pending, state.folder, catalogue)
    target = _open_at(wanted, state.folder, catalogue)
    if target.collections() and wanted.url != EMBEDDED:
        target.close()
        raise HoldfastError(f"{wanted.url}: the namespace {wanted.namespace} is in use; choose another one")
    for collection in target.collections():  # of this gallery, kept by an earlier migration
        target.drop(collection)
    catalogue.put_settings({"move": {"url": wanted.url, "place": wanted.options, "done": {}}})
    return wanted, target


def _copy(state: GalleryState, version: Version, target: Engine, options: MigrationOptions) -> None:
    """Copy a version's vectors, beginning after the last key that the catalogue records."""
    name, recorded = version.collection, state.catalogue.setting("move")
    if name not in target.collections():
        target.create(name, version.stored_dim)
        recorded["done"].pop(name, None)
    for keys, vectors in state.engine.scan(name, block=BLOCK, after=recorded["done"].get(name, -1)):
        items, _ = state.catalogue.by_key(keys.tolist())
        rows = [row for row, key in enumerate(keys.tolist()) if key in items]
        if rows:
            kept = keys[rows].tolist()
            target.upsert(name, kept, vectors[rows], [items[key].fields() for key in kept])
        recorded["done"][name] = int(keys[-1])
        state.catalogue.put_settings({"move": recorded})
        options.on_progress(len(rows))
        if options.stop.is_set():
            raise HoldfastError("the move was stopped; copied vectors are kept: the same move continues")


def _complete_and_compare(state: GalleryState, target: Engine) -> dict[str, CollectionChecksum]:
    """Repeat on ``target`` what changed since an earlier call copied it, and compare; checksums by collection."""
    versions = {one.collection: one for one in state.models.versions()}
    for name in set(target.collections()) - set(versions):
        target.drop(name)
    found = {}
    for name, version in versions.items():
        if name not in target.collections():
            target.create(name, version.stored_dim)
        here, there = collection_checksum(state.engine, name), collection_checksum(target, name)
        if _delete_unknown(state, name, there.missing(here)):
            here = collection_checksum(state.engine, name)
        missing, extra = there.missing(here), here.missing(there)
        for start in range(0, len(missing), BLOCK):
            _copy_keys(state, name, missing[start : start + BLOCK], target)
        if extra:
            target.delete(name, extra)
        found[name] = collection_checksum(target, name) if missing or extra else there
        if not here.same(found[name]):
            recorded = state.catalogue.setting("move")
            recorded["done"].pop(name, None)
            state.catalogue.put_settings({"move": recorded})
            raise HoldfastError(f"{name}: the copy differs from the original; nothing was switched, move it again")
    return found


def _delete_unknown(state: GalleryState, name: str, keys: list[int]) -> bool:
    """Delete from the old engine those of these vectors that no item owns; whether there were any.

    They are there if the gallery's folder comes from an older backup than the server's data.
    """
    unknown: list[int] = []
    for start in range(0, len(keys), BLOCK):
        block = keys[start : start + BLOCK]
        items, _ = state.catalogue.by_key(block)
        unknown += [key for key in block if key not in items]
    if unknown:
        state.engine.delete(name, unknown)
    return bool(unknown)


def _copy_keys(state: GalleryState, name: str, keys: list[int], target: Engine) -> None:
    vectors, (items, _) = state.engine.fetch(name, keys), state.catalogue.by_key(keys)
    target.upsert(name, keys, np.stack([vectors[key] for key in keys]), [items[key].fields() for key in keys])


def _open_at(address: EngineAddress, folder: GalleryFolder, catalogue: Catalogue) -> Engine:
    return open_engine(address, folder.vectors, catalogue.setting("mode"))


def _drop_all_at(address: EngineAddress, folder: GalleryFolder, catalogue: Catalogue) -> None:
    """Drop what a migration left at an address, if its server can be reached."""
    with contextlib.suppress(HoldfastError), contextlib.closing(_open_at(address, folder, catalogue)) as engine:
        _drop_all(engine)


def _drop_all(engine: Engine) -> None:
    for collection in engine.collections():
        engine.drop(collection)
