"""A gallery over another system's vector store: newer models search it in place, and nothing is copied or written.

Its folder holds ``attached.json`` (the address of the vectors, without a password) and copies of the models.
"""

import contextlib
import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from holdfast.bridges import BRIDGES, NONE, Bridge
from holdfast.bridges.choice import FEWEST_PAIRS
from holdfast.bridges.score_scale import SAME
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_json, replacing_folder, write_json
from holdfast.core.wording import counted
from holdfast.embedders.slot_registry import SlotRegistry
from holdfast.gallery.attached import open_source
from holdfast.gallery.attached.source import Address, AttachedSource, with_absolute_folder, without_password
from holdfast.gallery.attached.space import StoredSpace, checked_vector, stored_space
from holdfast.gallery.catalogue import explain_damage
from holdfast.gallery.filters import Filter
from holdfast.gallery.folder import GalleryFolder, bytes_below
from holdfast.gallery.gallery import Gallery
from holdfast.gallery.gallery_base import RegisterOptions, SearchOptions, SearchQuery
from holdfast.gallery.gallery_items import Hit
from holdfast.gallery.gallery_versions import (
    Version,
    VersionCandidate,
    copy_model,
    read_basis,
    read_candidate,
    space_conflict,
)
from holdfast.gallery.given_vectors import NewModelVectors
from holdfast.gallery.open_gallery import OpenGallery
from holdfast.gallery.version_bridges import bridge_record, bridge_to
from holdfast.gallery.version_models import Models, device_name, prepare_image
from holdfast.vectors.lengths import unit

FORMAT = "holdfast-attached"
_FETCHED_AT_ONCE = 500
"""Stored vectors that are fetched by id at a time."""


class StoreQuery(NamedTuple):
    """What is asked of the store beside the query's vector: number of hits, filter, and whether to compare all."""

    k: int
    where: Filter | None
    exact: bool


class AttachedGallery(OpenGallery):
    """A read-only gallery, made by ``attach`` or ``open``. Version 0 is the model that the stored vectors belong to.

    device: where its models embed.
    """

    def __init__(self, folder: Path, url: str | None, device: str) -> None:
        record = read_json(GalleryFolder(folder).attached)
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise HoldfastError(f"{GalleryFolder(folder).attached}: does not describe an attached gallery")
        self._record = record
        self._registering = threading.Lock()
        self._is_alone = False
        with explain_damage(GalleryFolder(folder).attached):
            versions = [Version(**row) for row in record["versions"]]
            address = Address(**record["address"])
        super().__init__(folder, AttachedModels(GalleryFolder(folder), versions, device))
        self._source: AttachedSource = open_source(address if url is None else replace(address, url=url))
        try:
            first, home = versions[0], GalleryFolder(folder).version(0)
            self._space = stored_space(
                VersionCandidate(home, first.dim, first.weights_sha256, None, read_basis(home)), self._source.dim
            )
        except BaseException:
            self._source.close()
            raise

    @classmethod
    def attach(
        cls, folder: str | Path, address: Address, model: str | Path | None = None, *, device: str = "auto"
    ) -> "AttachedGallery":
        """Attach a store: write its description and a copy of its model into a new folder.

        folder: does not exist yet, or is empty.
        address: where the vectors are.
        model: folder of the Holdfast model that filled the store; None if something else did. Version 0 has no model
            then, and is searched by vectors.
        device: where models embed, such as ``cpu`` or ``cuda:1``; ``auto`` is the GPU if there is one.
        """
        path, where = Path(folder), device_name(device)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise HoldfastError(f"{path}: already there; give the gallery a folder of its own")
        candidate = None if model is None else read_candidate(model, None)
        source = open_source(address)
        try:
            if candidate is None:
                name = hashlib.sha256(f"{without_password(address.url)} {address.table} {address.vector}".encode())
                candidate = VersionCandidate(source.name, source.dim, name.hexdigest())
            space = stored_space(candidate, source.dim)
            candidate.load(where)
        finally:
            source.close()
        version = replace(candidate.version(0), stored_dim=space.stored)
        slots = None if candidate.registry is None else candidate.registry.to_json()
        kept = {**asdict(address), "url": without_password(with_absolute_folder(address.url))}
        with replacing_folder(path) as temporary:
            copy_model(candidate, GalleryFolder(temporary).version(0))
            write_json(
                GalleryFolder(temporary).attached,
                {"format": FORMAT, "address": kept, "slots": slots, "versions": [version.as_json()]},
            )
        return cls(path, address.url, where)

    @classmethod
    def open(cls, folder: str | Path, *, url: str | None = None, device: str = "auto") -> "AttachedGallery":
        """Open a gallery that was attached before.

        url: the store's URL with a password; needed only if the password is not in PGPASSWORD or a password file.
        device: as in ``attach``.
        """
        return cls(Path(folder), url, device_name(device))

    def _register(self, model: str | Path | None, options: RegisterOptions) -> Version:
        if options.bridge in BRIDGES and options.new_vectors is None:
            raise HoldfastError(
                f"bridge {options.bridge!r}: an attached gallery has no images to embed; give the new model's vectors "
                "of some items (--new-vectors FILE, in Python new_vectors)"
            )
        with self._registering, contextlib.nullcontext() if self._is_alone else self.alone():
            if read_json(GalleryFolder(self.folder).attached) != self._record:
                raise HoldfastError(
                    f"{self.folder}: another process has registered a version since it was opened; open it again"
                )
            return self._add_version(model, options)

    def _add_version(self, model: str | Path | None, options: RegisterOptions) -> Version:
        candidate = read_candidate(model, options.new_vectors if model is None else None)
        candidate.load(self.models.device)
        known = self.versions()
        if any(one.weights_sha256 == candidate.weights_sha256 for one in known):
            raise HoldfastError(f"{candidate.source}: this model is a version already")
        slots, version = self._record["slots"], candidate.version(len(known))
        registry = None if slots is None else SlotRegistry.from_json(slots)
        conflict = space_conflict(registry, self._space.dim, candidate)
        bridge = options.ready_bridge(version.dim, self._source.dim)
        if bridge is None and options.new_vectors is not None:
            both = known[0], version
            bridge = _fit_bridge(self._source, self._space, candidate, both, options, comparable=conflict is None)
        elif bridge is None and conflict is not None:
            raise HoldfastError(
                f"{candidate.source}: its features cannot be compared with the stored vectors ({conflict}); give its "
                "vectors of some items to fit a bridge (--new-vectors FILE, in Python new_vectors)"
            )
        if conflict is None and registry is not None and candidate.registry is not None:
            slots = registry.merge(candidate.registry).to_json()
        folder = GalleryFolder(self.folder).version(version.number)
        copy_model(candidate, folder)
        if bridge is not None:
            bridge_to(folder, 0).parent.mkdir()
            bridge.save(bridge_to(folder, 0))
            version = replace(version, bridges=[bridge_record(0, bridge, folder)])
        # Last: a version exists once it is recorded, and files without a record are overwritten by the next version.
        record = {
            **self._record,
            "slots": slots,
            "versions": [one.as_json() for one in (*known, version)],
        }
        write_json(GalleryFolder(self.folder).attached, record)
        self._record = read_json(GalleryFolder(self.folder).attached)
        self.models.add_version(version, None)
        return version

    def _search(self, query: SearchQuery, options: SearchOptions) -> list[Hit]:
        where = self._source.parse_filter(options.filter)
        among = options.versions_among([version.number for version in self.versions()])
        source = self.models.version(query.version)
        if query.id is not None:
            stored = self._source.fetch([query.id])
            if query.id not in stored:
                raise HoldfastError(f"no item {query.id!r} in {self._source.name}")
            source, z = self.models.version(0), self._space.feature(stored[query.id])
        elif query.vector is not None:
            z = self._given(query.vector, source)
        else:
            encoder = self.models.encoder(source)
            (z,) = self.models.image_vectors(prepare_image(encoder, query.image), source, encoder)
        if among is not None and 0 not in among:
            return []
        wanted = StoreQuery(options.all_hits + (query.id is not None), where, options.exact)
        hits = self._nearest(z, self._bridge(source), wanted)
        return [hit for hit in hits if hit.id != query.id][options.offset : options.all_hits]

    def _bridge(self, version: Version) -> Bridge | None:
        """The bridge that carries queries of ``version`` to the stored vectors; None without one."""
        return None if version.number == 0 else self.models.bridge(version, self.models.version(0))

    def _given(self, given: ArrayLike, source: Version) -> np.ndarray:
        """A user's vector, of version ``source``, as a full unit feature."""
        vector = checked_vector(given)
        if all(record["kind"] == NONE for record in source.bridges):
            return self._space.given(vector)
        if len(vector) != source.dim:
            stored = "; give stored vectors as those of version 0" if len(vector) == self._space.stored else ""
            raise HoldfastError(
                f"query: {len(vector)} numbers; vectors of version {source.number} have {source.dim}{stored}"
            )
        return unit(vector)

    def _nearest(self, z: np.ndarray, bridge: Bridge | None, wanted: "StoreQuery") -> list[Hit]:
        """The best stored vectors for a full unit feature.

        bridge: of the version that the feature is of; None for none.
        """
        scale = SAME if bridge is None else bridge.scale
        if bridge is not None and bridge.kind != NONE:
            query, length = bridge.one(z), 1.0
        else:
            query = self._space.query(z)
            length = 1.0 if self._space.down is None else float(np.linalg.norm(query))
            if length == 0:
                raise HoldfastError("query: is orthogonal to everything the stored vectors can represent")
        found = self._source.search(query, wanted.k, wanted.where, exact=wanted.exact)
        hits = [Hit(near.id, scale.score(near.cosine * length), near.cosine * length, 0, near.label) for near in found]
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))[: wanted.k]

    @property
    def read_only(self) -> str:
        """Why nothing can be written."""
        return f"{self.folder}: attached, and so read-only; write to {self._source.name} itself"

    def get(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Which of these ids are stored, with their labels."""
        found = self._source.labels(list(ids))
        return {name: {"version": 0, "label": label, "metadata": {}, "path": None} for name, label in found.items()}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """A context in which no other process serves the gallery or registers a version."""
        folder = GalleryFolder(self.folder)
        folder.lock()
        self._is_alone = True
        try:
            yield
        finally:
            self._is_alone = False
            folder.unlock()

    def stats(self) -> dict[str, Any]:
        """Number of stored vectors, and the size of the folder in bytes; see ``Gallery.stats``."""
        count = self._source.count()
        rows = [
            {
                "version": one.number,
                "items": count if one.number == 0 else 0,
                "vectors": count if one.number == 0 else 0,
                "unindexed": 0,
                "stored_dim": one.stored_dim,
                "dim": one.dim,
                "bridges": one.bridges,
            }
            for one in self.versions()
        ]
        shown = {"items": count, "labelled": self._source.count(labelled=True), "with_path": 0}
        about = {"fields": self._source.fields, "engine": self._source.name, "index": self._source.index}
        newest = {"newest": self.newest().number, "rolling_back": None}
        return {**shown, **about, **newest, "bytes_on_disk": bytes_below(self.folder), "versions": rows}

    def close(self) -> None:
        self._source.close()


def open_gallery(folder: str | Path, *, device: str = "auto") -> OpenGallery:
    """Open a gallery of either kind."""
    attached = GalleryFolder(Path(folder)).attached.is_file()
    return AttachedGallery.open(folder, device=device) if attached else Gallery.open(folder, device=device)


class AttachedModels(Models):
    """Version 0 and the models registered after it. Their features stay full until the store is searched."""

    def stored_rows(self, full: np.ndarray, version: Version) -> np.ndarray:
        return full


def _fit_bridge(
    source: AttachedSource,
    space: StoredSpace,
    candidate: VersionCandidate,
    versions: tuple[Version, Version],
    options: RegisterOptions,
    *,
    comparable: bool,
) -> Bridge:
    """The bridge from the new model's full features to the stored vectors.

    versions: of the stored vectors, and of the new model.
    options: with ``new_vectors``.
    comparable: whether features of the model can search the store without a bridge.
    Refused: fewer than 10 stored items in ``new_vectors``; no bridge that connects, unless forced.
    """
    assert options.new_vectors is not None
    given, (old_version, new_version) = NewModelVectors(options.new_vectors), versions
    rows, old = _stored_pairs(source, given, options)
    if options.old_vectors is not None:
        other = given.paired_with(
            options.old_vectors,
            old_version,
            lambda vector, what: _as_stored(vector, source.dim, what),
            lambda names: source.labels(names).keys(),
            options.bridge_pairs - len(rows),
        )
        old = np.concatenate([part.reshape(-1, source.dim) for part in (old, other.old)])
        rows = [*rows, *other.rows]
    if len(rows) < FEWEST_PAIRS:
        found = f"{given.name}: has ids of {counted(len(rows), 'stored vector')} of {source.name}"
        raise HoldfastError(f"{found}, and a bridge needs {FEWEST_PAIRS}; add more, with the ids of the store")
    new = given.stored(rows, new_version, candidate.basis)
    if candidate.basis is not None:
        new = unit(new @ candidate.basis.T)
    options.progress("fitting the bridge", 0, 1)
    bridge = Bridge.fit(
        new=new,
        old=old,
        kind=options.bridge,
        items=source.count(),
        same_space=comparable,
        unbridged=space.query(new) if comparable else None,
        models={"new": new_version.weights_sha256, "old": old_version.weights_sha256},
    )
    options.progress("fitting the bridge", 1, 1)
    if not bridge.agrees_beyond_chance and not options.force:
        raise HoldfastError(
            f"{candidate.source}: no bridge connects the models: on {bridge.evidence.held_out} held-out items it finds "
            f"no more than random hits would; check that the ids of {given.name} name the same items, or pass --force "
            "(in Python force=True)"
        )
    return bridge


def _as_stored(vector: np.ndarray, dim: int, what: str) -> np.ndarray:
    if vector.size != dim or not np.isfinite(vector).all() or not vector.any():
        raise HoldfastError(f"{what}: {vector.size} numbers, of which the store has {dim}; or zero, or not finite")
    return vector


def _stored_pairs(
    source: AttachedSource, given: NewModelVectors, options: RegisterOptions
) -> tuple[list[int], np.ndarray]:
    """Row numbers of ``given`` with a stored vector, at random with a fixed seed, and these vectors.

    Stored vectors that are zero or not finite are left out.
    """
    ids, most = given.ids(), options.bridge_pairs
    order = np.random.default_rng(0).permutation(len(ids)).tolist()
    rows: list[int] = []
    vectors: list[np.ndarray] = []
    for start in range(0, len(order), _FETCHED_AT_ONCE):
        block = order[start : start + _FETCHED_AT_ONCE]
        found = source.fetch([ids[row] for row in block])
        for row in block:
            vector = found.get(ids[row])
            if vector is not None and np.isfinite(vector).all() and vector.any():
                rows.append(row)
                vectors.append(vector)
        options.progress("fetching stored vectors", min(len(rows), most), min(len(ids), most))
        if len(rows) >= most:
            break
    return rows[:most], np.array(vectors[:most], dtype=np.float32)
