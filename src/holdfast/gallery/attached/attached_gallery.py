"""A gallery over another system's vector store: newer models search it in place, and nothing is copied or written.

Its folder holds ``attached.json`` (the address of the vectors, without a password) and copies of the models.
"""

import contextlib
import hashlib
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from holdfast.bridges import NONE, Bridge
from holdfast.bridges.choice import FEWEST_PAIRS
from holdfast.bridges.scores import SAME
from holdfast.core.errors import HoldfastError, unknown_name
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
from holdfast.gallery.gallery_items import Hit
from holdfast.gallery.gallery_kinds import AUTO, MOST_PAIRS, OpenGallery, RegisterProgress
from holdfast.gallery.gallery_versions import (
    Candidate,
    Version,
    copy_model,
    read_basis,
    read_candidate,
    space_conflict,
)
from holdfast.gallery.given_vectors import NewVectors
from holdfast.gallery.registration import RegisterOptions
from holdfast.gallery.searching import checked_indexed_by, checked_k, checked_offset
from holdfast.gallery.vector_sources import VectorSource
from holdfast.gallery.version_bridges import VersionBridges, bridge_record, bridge_to
from holdfast.gallery.version_models import device_name, load_encoder, prepare_image
from holdfast.vectors.lengths import unit

if TYPE_CHECKING:
    from holdfast.embedders.image_encoder import ImageEncoder
    from holdfast.embedders.model_inputs import ImageLike

FORMAT = "holdfast-attached"
_FETCHED_AT_ONCE = 500
"""Stored vectors that are fetched by id at a time."""


class StoreQuery(NamedTuple):
    """What is asked of the store beside the query's vector: number of hits, filter, and whether to compare all."""

    k: int
    where: Filter | None
    exact: bool


class AttachedGallery:
    """A read-only gallery, made by ``attach`` or ``open``. Version 0 is the model that the stored vectors belong to.

    device: where its models embed.
    """

    def __init__(self, folder: Path, url: str | None, device: str) -> None:
        self._folder, self.device = folder, device
        record = read_json(GalleryFolder(folder).attached)
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise HoldfastError(f"{GalleryFolder(folder).attached}: does not describe an attached gallery")
        self._record = record
        self._registering = threading.Lock()
        self._is_alone = False
        with explain_damage(GalleryFolder(folder).attached):
            self._models = AttachedModels(folder, [Version(**one) for one in record["versions"]], device)
            address = Address(**record["address"])
        self._source: AttachedSource = open_source(address if url is None else replace(address, url=url))
        try:
            first, home = self._models.version(0), self._models.folder(0)
            self._space = stored_space(
                Candidate(home, first.dim, first.weights_sha256, None, read_basis(home)), self._source.dim
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
                candidate = Candidate(source.name, source.dim, name.hexdigest())
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

    def register(
        self,
        model: str | Path | None = None,
        *,
        force: bool = False,
        bridge: str = AUTO,
        bridge_pairs: int = MOST_PAIRS,
        new_vectors: VectorSource | None = None,
        old_vectors: VectorSource | None = None,
        progress: RegisterProgress = lambda stage, done, total: None,
    ) -> Version:
        """Make a model the newest version, which embeds queries.

        With ``new_vectors`` a bridge is fitted from the new model's vectors to the vectors as the store holds them, and
        queries are bridged if held-out items show that it is better. The model may then have any size and slots.
        Without, a model is refused if its slots or size conflict with version 0.

        The model is not checked, because the images of the stored vectors are not known; run ``holdfast check``.

        model: the model's folder; None for a version of vectors alone, which ``new_vectors`` are of.
        force: register a model that no bridge connects, too.
        bridge: ``auto``, ``none``, a kind of ``holdfast.bridges``, which needs ``new_vectors``, or the folder of a
            ready bridge.
        bridge_pairs: at most so many stored vectors are fetched to fit the bridge.
        new_vectors: the new model's vectors of some stored items, matched by id.
        old_vectors: vectors of other things as the store would hold them; see ``Gallery.register``.
        progress: called with what is being done, how much of it is done, and how much there is.
        """
        options = RegisterOptions(force, bridge, bridge_pairs, new_vectors, old_vectors, progress)
        if bridge not in (AUTO, NONE) and not Path(bridge).is_dir() and new_vectors is None:
            raise HoldfastError(
                f"bridge {bridge!r}: an attached gallery has no images to embed; give the new model's vectors of some "
                "items (--new-vectors FILE, in Python new_vectors)"
            )
        with self._registering, contextlib.nullcontext() if self._is_alone else self.alone():
            if read_json(GalleryFolder(self._folder).attached) != self._record:
                raise HoldfastError(
                    f"{self._folder}: another process has registered a version since it was opened; open it again"
                )
            return self._register(model, options)

    def _register(self, model: str | Path | None, options: RegisterOptions) -> Version:
        candidate = read_candidate(model, options.new_vectors if model is None else None)
        candidate.load(self.device)
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
        folder = self._models.folder(version.number)
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
        write_json(GalleryFolder(self._folder).attached, record)
        self._record = read_json(GalleryFolder(self._folder).attached)
        self._models.add_version(version)
        return version

    def search(
        self,
        image: "ImageLike | None" = None,
        *,
        vector: ArrayLike | None = None,
        id: str | None = None,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        version: int | None = None,
        indexed_by: int | Collection[int] | None = None,
        exact: bool = False,
        offset: int = 0,
    ) -> list[Hit]:
        """The ``k`` stored vectors nearest to an image, a vector or a stored item, best first, by true cosine.

        Queries of a version with a bridge are bridged and compared with the vectors as the store holds them. Equal
        scores are ordered by id.

        image: a path, a PIL image or an array.
        vector: a full feature of ``version``; version 0 also takes a vector as the store holds them.
        id: a stored item, which is itself left out.
        k: number of hits, at most 10,000.
        filter: conditions on the store's fields, as in ``Gallery.search``: the columns of a table with text, numbers
            or booleans (``column.member`` in a jsonb column), or the payload of a collection. ``label`` is the column
            or field of labels that the gallery was attached with.
        version: the version that embeds the image, or that made the vector; default the newest. A vector that has the
            size of version 0 only is taken for one of version 0. If the newest version has a bridge and the size fits
            both, ``version`` must be given.
        indexed_by: as in ``Gallery.search``; version 0 holds all items.
        exact: compare every vector.
        offset: leave out so many of the best hits; see ``Gallery.search``.
        """
        k = checked_k(image, vector, id, k, version)
        k += checked_offset(offset, k)
        where = self._source.parse_filter(filter)
        among = checked_indexed_by(indexed_by, [one.number for one in self.versions()])
        source = self._models.version(version)
        if id is not None:
            found = self._source.fetch([id])
            if id not in found:
                raise HoldfastError(f"no item {id!r} in {self._source.name}")
            source, z = self._models.version(0), self._space.feature(found[id])
        elif vector is not None:
            source, z = self._given(vector, source, guess=version is None)
        else:
            encoder = self._models.encoder(source)
            (z,) = self._models.image_vectors(prepare_image(encoder, image), source, encoder)
        if among is not None and 0 not in among:
            return []
        wanted = StoreQuery(k + (id is not None), where, exact)
        hits = self._nearest(z, self._models.bridge(source), wanted)
        return [hit for hit in hits if hit.id != id][offset:k]

    def _given(self, given: ArrayLike, source: Version, *, guess: bool) -> tuple[Version, np.ndarray]:
        """A user's vector as a full unit feature, and the version that it is of.

        guess: the version was not named, so that the size decides between ``source`` and version 0.
        """
        vector = checked_vector(given)
        size, sizes = len(vector), {self._space.dim, self._space.stored}
        if not self._models.is_bridged(source):
            return source, self._space.given(vector)
        if guess and size in sizes and size == source.dim:
            raise HoldfastError(
                f"query: {size} numbers may be a vector of version {source.number} or a stored one; say which by "
                f"version {source.number} or 0"
            )
        if guess and size in sizes:
            return self._models.version(0), self._space.given(vector)
        if size != source.dim:
            also = f", stored ones {' or '.join(map(str, sorted(sizes)))}" if guess else ""
            raise HoldfastError(f"query: {size} numbers; vectors of version {source.number} have {source.dim}{also}")
        return source, unit(vector)

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
        """Why nothing can be written; see ``SearchableGallery``."""
        return f"{self._folder}: attached, and so read-only; write to {self._source.name} itself"

    @property
    def models(self) -> "AttachedModels":
        """The models of all versions."""
        return self._models

    def get(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Which of these ids are stored, with their labels."""
        found = self._source.labels(list(ids))
        return {name: {"version": 0, "label": label, "metadata": {}, "path": None} for name, label in found.items()}

    def versions(self) -> list[Version]:
        """Version 0, the stored vectors' model, and the models registered after it."""
        return self._models.versions()

    @property
    def folder(self) -> Path:
        """The gallery's folder."""
        return self._folder

    def newest(self) -> Version:
        """The version that embeds queries."""
        return self._models.newest()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """A context in which no other process serves the gallery or registers a version."""
        folder = GalleryFolder(self._folder)
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
        about = {"fields": self._source.fields, "engine": self._source.name, "mode": f"read-only, {self._source.index}"}
        newest = {"newest": self.newest().number, "rolling_back": None}
        return {**shown, **about, **newest, "bytes_on_disk": bytes_below(self._folder), "versions": rows}

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def open_gallery(folder: str | Path, *, device: str = "auto") -> OpenGallery:
    """Open a gallery of either kind."""
    attached = GalleryFolder(Path(folder)).attached.is_file()
    return AttachedGallery.open(folder, device=device) if attached else Gallery.open(folder, device=device)


class AttachedModels:
    """Version 0 and the models registered after it. One encoder is loaded at a time; safe for many threads.

    device: where encoders are loaded and embed.
    """

    def __init__(self, folder: Path, versions: Sequence[Version], device: str) -> None:
        self._home, self.device = GalleryFolder(folder), device
        self._versions = list(versions)
        self._encoding = threading.RLock()
        self._loaded: tuple[int, ImageEncoder] | None = None
        self._bridges = VersionBridges(self._home)

    def folder(self, number: int) -> Path:
        return self._home.version(number)

    def versions(self) -> list[Version]:
        return list(self._versions)

    def newest(self) -> Version:
        return self._versions[-1]

    def version(self, number: int | None) -> Version:
        """The version with this number; None is the newest."""
        if number is None:
            return self.newest()
        known = self.versions()
        if not 0 <= number < len(known):
            raise unknown_name("version", str(number), range(len(known)))
        return known[number]

    def add_version(self, version: Version) -> None:
        self._versions = [*self._versions, version]

    def bridge(self, version: Version) -> Bridge | None:
        """The bridge that carries queries of ``version`` to the stored vectors; None without one."""
        return None if version.number == 0 else self._bridges.between(version, self._versions[0])

    def is_bridged(self, version: Version) -> bool:
        """Whether queries of ``version`` leave its own space for that of the stored vectors."""
        return any(record["kind"] != NONE for record in version.bridges)

    def encoder(self, version: Version) -> "ImageEncoder":
        with self._encoding:
            if self._loaded is None or self._loaded[0] != version.number:
                self._loaded = version.number, load_encoder(self._home, version, self.device)
            return self._loaded[1]

    def image_vectors(self, images: np.ndarray, version: Version, encoder: "ImageEncoder") -> np.ndarray:
        """Prepared images (N x H x W x C) as full unit features, N x dim."""
        with self._encoding:
            return encoder.embed(images)


def _fit_bridge(
    source: AttachedSource,
    space: StoredSpace,
    candidate: Candidate,
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
    given, (old_version, new_version) = NewVectors(options.new_vectors), versions
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


def _stored_pairs(source: AttachedSource, given: NewVectors, options: RegisterOptions) -> tuple[list[int], np.ndarray]:
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
