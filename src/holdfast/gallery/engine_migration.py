"""Migrate a gallery's vectors to another engine (``Gallery.move``), while no other process has the gallery open.

1. The catalogue records the target. 2. Every collection is copied, indexed, read back and compared. 3. One transaction
makes the target the gallery's engine and marks the old one for removal. 4. The old engine's collections are dropped.
After a kill before step 3 the gallery is on its old engine, and the next call drops the copies and begins again; after
step 3 it is on the new one.
"""

import contextlib
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
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


def migrate(
    state: GalleryState, wanted: EngineAddress, *, keep: bool, on_progress: Callable[[int], None]
) -> dict[str, Any]:
    """Migrate to the engine at ``wanted``; its address, and count and checksum of each collection.

    The caller closes the gallery afterwards: it still uses the old engine.

    keep: do not drop the vectors on the old engine.
    on_progress: called with the number of vectors of each copied block.
    """
    before = current_address(state.catalogue)
    checksums = {}
    with contextlib.closing(_open_target(state, before, wanted)) as target:
        for version in state.models.versions():
            checksums[version.collection] = copied = _copy(state, version, target, on_progress)
            target.build_index(version.collection)
            if _stored_checksum(target, version.collection) != copied:
                raise HoldfastError(
                    f"{version.collection}: the copy differs from the original; nothing was switched, move it again"
                )
    retired = None if keep else {"url": before.url, "namespace": before.namespace}
    changed = {"engine": wanted.url, "namespace": wanted.namespace, "move": None, "retired": retired}
    state.catalogue.put_settings(changed)
    if not keep:
        with contextlib.suppress(HoldfastError):  # its server cannot be reached: tried again at the next opening
            _drop_all(state.engine)
            state.catalogue.put_settings({"retired": None})
    rows = {name: asdict(checksum) for name, checksum in checksums.items()}
    return {"from": before.url, "engine": wanted.url, "namespace": wanted.namespace, "collections": rows}


def current_address(catalogue: Catalogue) -> EngineAddress:
    """The address of the gallery's engine."""
    return EngineAddress(catalogue.setting("engine"), catalogue.setting("namespace"))


def open_current_engine(folder: GalleryFolder, catalogue: Catalogue) -> Engine:
    """Open the gallery's engine. An old engine that a killed migration left behind is dropped first."""
    retired = catalogue.setting("retired")
    if retired is not None:
        catalogue.put_settings({"retired": None})  # tried once: its server may be gone permanently
        _drop_all_at(EngineAddress(**retired), folder)
    engine = open_engine(current_address(catalogue), folder.vectors)
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
    """How many vectors, and the SHA-256 over each key (8 bytes) and its vector (float32), little-endian, by key."""

    count: int
    sha256: str


class _Digest:
    """Computes the checksum of a collection from its blocks; it is the same on every engine."""

    def __init__(self) -> None:
        self._count, self._sha256 = 0, hashlib.sha256()

    def add(self, keys: np.ndarray, vectors: np.ndarray) -> None:
        rows = np.empty(len(keys), dtype=[("key", "<i8"), ("vector", "<f4", vectors.shape[1:])])
        rows["key"], rows["vector"] = keys, vectors
        self._sha256.update(rows.tobytes())  # row by row, so that block sizes do not matter
        self._count += len(keys)

    def checksum(self) -> CollectionChecksum:
        return CollectionChecksum(self._count, self._sha256.hexdigest())


def _stored_checksum(engine: Engine, collection: str) -> CollectionChecksum:
    digest = _Digest()
    for keys, vectors in engine.scan(collection):
        digest.add(keys, vectors)
    return digest.checksum()


def _open_target(state: GalleryState, before: EngineAddress, wanted: EngineAddress) -> Engine:
    """The engine to copy to, without collections; recorded, so that what a killed move leaves there is dropped."""
    catalogue = state.catalogue
    if wanted.url == before.url == EMBEDDED:
        raise HoldfastError("the gallery is on the embedded engine already")
    if wanted == before:
        raise HoldfastError(f"the gallery is at {before.url} in the namespace {before.namespace} already")
    unfinished = catalogue.setting("move")
    if unfinished is not None:
        _drop_all_at(EngineAddress(**unfinished), state.folder)
    target = open_engine(wanted, state.folder.vectors)
    if wanted.url == EMBEDDED:
        _drop_all(target)  # of this gallery, kept by an earlier move
    elif target.collections():
        target.close()
        raise HoldfastError(f"{wanted.url}: the namespace {wanted.namespace} is in use; choose another one")
    catalogue.put_settings({"move": {"url": wanted.url, "namespace": wanted.namespace}})
    return target


def _copy(
    state: GalleryState, version: Version, target: Engine, on_progress: Callable[[int], None]
) -> CollectionChecksum:
    """Copy a version's vectors but those that belong to no item; the checksum of what was copied."""
    name, digest = version.collection, _Digest()
    target.create(name, version.stored_dim)
    for keys, vectors in state.engine.scan(name, block=BLOCK):
        items, _ = state.catalogue.by_key(keys.tolist())
        rows = [row for row, key in enumerate(keys.tolist()) if key in items]
        if rows:
            copied = keys[rows].tolist()
            target.upsert(name, copied, vectors[rows], [items[key].fields() for key in copied])
            digest.add(keys[rows], vectors[rows])
        on_progress(len(rows))
    return digest.checksum()


def _drop_all_at(address: EngineAddress, folder: GalleryFolder) -> None:
    """Drop what a migration left at an address, if its server can be reached."""
    with contextlib.suppress(HoldfastError), contextlib.closing(open_engine(address, folder.vectors)) as engine:
        _drop_all(engine)


def _drop_all(engine: Engine) -> None:
    for collection in engine.collections():
        engine.drop(collection)
