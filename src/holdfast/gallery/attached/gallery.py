"""A gallery over somebody else's store: searched in place by newer models, nothing copied, nothing written there.

Its folder holds ``attached.json`` (where the vectors lie; never a password) and copies of the models.

The models of an attached gallery at work: images in, full features out.

How the features of newer models meet vectors that were stored by version 0 and are not touched.
"""

import contextlib
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.devices import resolve_device
from holdfast.encoders import Encoder
from holdfast.encoders.compact import compact_basis
from holdfast.encoders.preprocess import OneImage
from holdfast.errors import HoldfastError, unknown_name
from holdfast.gallery.attached.source import Address, AttachedSource, open_source, without_password
from holdfast.gallery.folder import GalleryFolder, bytes_below
from holdfast.gallery.forward_pass import enough_memory, full_features
from holdfast.gallery.gallery import Gallery, checked_question, checked_versions
from holdfast.gallery.items import Hit
from holdfast.gallery.models import ready
from holdfast.gallery.versions import MODEL, Version, keep_model, read_candidate, registry_of, slots_together
from holdfast.geometry import unit
from holdfast.storage import read_json, replacing_folder, write_json

RECORD = "attached.json"
FORMAT = "holdfast-attached"
_CANDIDATES = 100
"""Fetched at least, where the store's own order is not the true one."""


class AttachedGallery:
    """Made by ``attach`` or ``open``. Version 0 is the model whose space the stored vectors live in.

    ``device``: where its models embed.
    """

    def __init__(self, folder: Path, url: str | None, device: torch.device) -> None:
        self._folder, self.device = folder, device
        record = read_json(folder / RECORD)
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise HoldfastError(f"{folder / RECORD}: does not describe an attached gallery")
        self._record = record
        self._registering = threading.Lock()
        self._models = AttachedModels(folder, [Version(**one) for one in record["versions"]], device)
        address = Address(**record["address"])
        # On the CPU: only its weights are read here, and ``stats`` should not need the GPU.
        first = Encoder.from_pretrained(self._models.folder(0) / MODEL)
        self._source: AttachedSource = open_source(address if url is None else replace(address, url=url))
        try:
            self._space: StoredSpace = stored_space(first, self._source.dim, self._models.folder(0))
        except BaseException:
            self._source.close()
            raise

    @classmethod
    def attach(
        cls, folder: str | Path, address: Address, model: str | Path, *, device: str | torch.device = "auto"
    ) -> "AttachedGallery":
        """Describe a store in a new folder; ``model``: an adopted model, or the Holdfast model that filled it.

        device: where models embed, such as ``cpu`` or ``cuda:1``; ``auto`` is the GPU if there is one.
        """
        path, where = Path(folder), resolve_device(device)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise HoldfastError(f"{path}: already there; give the gallery a folder of its own")
        candidate = read_candidate(Path(model))
        source = open_source(address)
        try:
            space = stored_space(candidate.encoder, source.dim, Path(model))
        finally:
            source.close()
        version = replace(candidate.version(0, []), stored_dim=space.stored)
        slots = None if candidate.registry is None else candidate.registry.to_json()
        kept = {**asdict(address), "url": without_password(address.url)}
        with replacing_folder(path) as temporary:
            keep_model(candidate, temporary / "versions" / "0000")
            write_json(
                temporary / RECORD,
                {"format": FORMAT, "address": kept, "slots": slots, "versions": [version.as_json()]},
            )
        return cls(path, address.url, where)

    @classmethod
    def open(
        cls, folder: str | Path, *, url: str | None = None, device: str | torch.device = "auto"
    ) -> "AttachedGallery":
        """An attached gallery that was described before.

        url: with a password, where the server wants one and no PGPASSWORD or password file holds it. device: as in
        ``attach``.
        """
        return cls(Path(folder), url, resolve_device(device))

    def register(self, model: str | Path, *, force: bool = False) -> Version:
        """Make a model the one that queries are embedded by; refused where slots or sizes clash.

        Nothing is known here of the images behind stored vectors, so ``holdfast check`` has to judge it; ``force`` has
        nothing to force.
        """
        with self._registering:
            return self._register(Path(model))

    def _register(self, model: Path) -> Version:
        candidate = read_candidate(model)
        known = self.versions()
        if any(one.weights_sha256 == candidate.weights_sha256 for one in known):
            raise HoldfastError(f"{model}: these weights are a version already")
        slots = slots_together(registry_of(self._record["slots"]), candidate, self._space.dim)
        version = candidate.version(len(known), [])
        keep_model(candidate, self._models.folder(version.number))
        record = {
            **self._record,
            "slots": None if slots is None else slots.to_json(),
            "versions": [one.as_json() for one in (*known, version)],
        }
        write_json(self._folder / RECORD, record)
        self._record = record
        self._models.welcome(version)
        return version

    def search(
        self,
        image: OneImage | None = None,
        *,
        vector: ArrayLike | None = None,
        id: str | None = None,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        version: int | None = None,
        indexed_by: int | Collection[int] | None = None,
        exact: bool = False,
    ) -> list[Hit]:
        """The ``k`` stored vectors nearest to an image, a vector or a stored one, best first, by true cosine.

        vector: a full feature of any version, or a vector as the store holds them. Where version 0 compares through a
        projection that is no isometry, the store's own order only proposes candidates, ten times ``k``, which are then
        compared truly: a better one beyond them is missed. Equal scores go to the smaller id. indexed_by: as in
        ``Gallery.search``; all that is stored counts as version 0's, so that other versions have no items.
        """
        k = checked_question(image, vector, id, k)
        if filter:
            raise HoldfastError("an attached gallery is not filtered: its fields are the store's own; ask the store")
        among = checked_versions(indexed_by, [one.number for one in self.versions()])
        asking = self._models.version(version)
        if id is not None:
            found = self._source.fetch([id])
            if id not in found:
                raise HoldfastError(f"no item {id!r} in {self._source.name}")
            z = self._space.feature(torch.from_numpy(found[id]))
        elif vector is not None:
            z = self._space.given(vector)
        else:
            encoder = self._models.encoder(asking)
            (row,) = self._models.image_vectors(ready(encoder, image), asking, encoder)
            z = torch.from_numpy(row)
        if among is not None and 0 not in among:
            return []
        hits = self._nearest(z, k + (id is not None), exact)
        return [hit for hit in hits if hit.id != id][:k]

    def _nearest(self, z: Tensor, k: int, exact: bool) -> list[Hit]:
        space = self._space
        query = space.query(z)
        length = float(query.norm())
        if length == 0:
            raise HoldfastError("query: has nothing in the directions that the stored vectors span")
        wanted = k if space.up is None else max(_CANDIDATES, 10 * k)
        found = self._source.search(query.numpy(), wanted, exact=exact)
        scores = {near.id: near.cosine * length for near in found}
        if space.up is not None:
            vectors = self._source.fetch([near.id for near in found])
            scores = {name: float(space.feature(torch.from_numpy(row)) @ z) for name, row in vectors.items()}
        hits = [Hit(near.id, scores[near.id], 0, near.label) for near in found if near.id in scores]
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))[:k]

    def add(self, items: Iterable[Any], **options: Any) -> NoReturn:
        """Refused."""
        self._refuse()

    def vectors_taken(self, version: int) -> NoReturn:
        """Refused."""
        self._refuse()

    def delete(self, ids: Iterable[str]) -> NoReturn:
        """Refused."""
        self._refuse()

    def build_index(self) -> NoReturn:
        """Refused."""
        self._refuse()

    def backfill(self, to: int | None = None, **options: Any) -> NoReturn:
        """Refused."""
        self._refuse()

    def rollback(self, **options: Any) -> NoReturn:
        """Refused."""
        self._refuse()

    def move(self, to: str, **options: Any) -> NoReturn:
        """Refused."""
        self._refuse()

    def get(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Which of these ids are stored."""
        found = self._source.fetch(list(ids))
        return {name: {"version": 0, "label": None, "metadata": {}, "path": None} for name in found}

    def versions(self) -> list[Version]:
        """Version 0, whose space the stored vectors live in, and the models registered after it."""
        return self._models.versions()

    def newest(self) -> Version:
        """The version that embeds what is asked."""
        return self._models.newest()

    def reading(self) -> AbstractContextManager[None]:
        """As ``Gallery.reading``; no version is ever taken out here."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While this is held no other process serves the gallery."""
        folder = GalleryFolder(self._folder)
        folder.lock()
        try:
            yield
        finally:
            folder.unlock()

    def stats(self) -> dict[str, Any]:
        count = self._source.count()
        rows = [
            {
                "version": one.number,
                "items": count if one.number == 0 else 0,
                "vectors": count if one.number == 0 else 0,
                "unindexed": 0,
                "stored_dim": one.stored_dim,
                "dim": one.dim,
            }
            for one in self.versions()
        ]
        shown = {"items": count, "labelled": count if self._record["address"]["label"] else 0, "with_path": 0}
        about = {"fields": [], "engine": self._source.name, "mode": f"read-only, {self._source.index}"}
        return {**shown, **about, "bytes_on_disk": bytes_below(self._folder), "versions": rows}

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _refuse(self) -> NoReturn:
        raise HoldfastError(f"{self._folder}: attached, and so read-only; write to {self._source.name} itself")


def open_gallery(folder: str | Path, *, device: str | torch.device = "auto") -> Gallery | AttachedGallery:
    """A gallery of either kind."""
    kind = AttachedGallery if (Path(folder) / RECORD).is_file() else Gallery
    return kind.open(folder, device=device)


class AttachedModels:
    """Version 0 and the models registered after it, by number; the encoder in use is held, any thread may ask.

    device: where encoders are loaded and embed.
    """

    def __init__(self, folder: Path, versions: Sequence[Version], device: torch.device) -> None:
        self._folder, self.device = folder, device
        self._versions = list(versions)
        self._encoding = threading.RLock()
        self._held: tuple[int, Encoder] | None = None

    def folder(self, number: int) -> Path:
        return self._folder / "versions" / f"{number:04d}"

    def versions(self) -> list[Version]:
        return list(self._versions)

    def newest(self) -> Version:
        return self._versions[-1]

    def version(self, number: int | None) -> Version:
        """The version of this number; None is the newest."""
        if number is None:
            return self.newest()
        known = self.versions()
        if not 0 <= number < len(known):
            raise unknown_name("version", str(number), range(len(known)))
        return known[number]

    def welcome(self, version: Version) -> None:
        self._versions = [*self._versions, version]

    def encoder(self, version: Version) -> Encoder:
        with self._encoding:
            if self._held is None or self._held[0] != version.number:
                with enough_memory(self.device):
                    encoder = Encoder.from_pretrained(self.folder(version.number) / MODEL, device=self.device)
                self._held = version.number, encoder
            return self._held[1]

    def image_vectors(self, images: Tensor, version: Version, encoder: Encoder) -> np.ndarray:
        """Preprocessed images (N x C x H x W) as full unit features, N x dim."""
        with self._encoding:
            found: np.ndarray = full_features(encoder, images, self.device).numpy()
        return found


_SAME = 1e-4


@dataclass(frozen=True)
class StoredSpace:
    """dim: numbers of a full feature z. stored: numbers of a stored vector.

    down: dim x stored, what a feature is multiplied by to meet stored vectors; None where they are features themselves.
    up: dim x stored, what a stored vector h is multiplied by to be compared truly, z . (up h) / |up h|; None where the
    store's own cosine of z down and h, times |z down|, is that already.
    """

    dim: int
    stored: int
    down: Tensor | None = None
    up: Tensor | None = None

    def query(self, z: Tensor) -> Tensor:
        """A full unit feature (dim) as it is put to the store, with the length that belongs to the score."""
        return z if self.down is None else z @ self.down

    def feature(self, stored: Tensor) -> Tensor:
        """A stored vector (or N of them) as a full unit feature."""
        lift = self.up if self.up is not None else self.down
        return unit(stored) if lift is None else unit(unit(stored) @ lift.T)

    def given(self, vector: ArrayLike) -> Tensor:
        """A query that a user gave: a full feature, or a vector as the store holds them."""
        found = torch.as_tensor(vector, dtype=torch.float32).flatten()
        if len(found) not in (self.dim, self.stored):
            also = "" if self.dim == self.stored else f", or stored ones of {self.stored}"
            raise HoldfastError(f"query: {len(found)} numbers; features of {self.dim}{also} can be asked")
        if not bool(found.isfinite().all()) or not bool(found.any()):
            raise HoldfastError("query: zero, or not finite")
        return unit(found) if len(found) == self.dim else self.feature(found)


def stored_space(encoder: Encoder, stored: int, folder: Path) -> StoredSpace:
    """The space of vectors of ``stored`` numbers by ``encoder``, version 0; refused where it did not make them.

    An adopted model's vectors are its input; any other model's are its features, full or compact.
    """
    if "adopted" in encoder.info:
        if stored != encoder.feature_dim:
            raise HoldfastError(
                f"{folder}: adopted from vectors of {encoder.feature_dim} numbers, but the stored ones have {stored}"
            )
        if encoder.projection is None:
            return StoredSpace(encoder.dim, stored)
        weight = encoder.projection.weight.detach().float()
        if encoder.dim >= stored and _is_isometry(weight):
            return StoredSpace(encoder.dim, stored, down=weight)
        return StoredSpace(encoder.dim, stored, down=weight, up=weight)
    basis = compact_basis(encoder)
    if stored == encoder.dim:
        return StoredSpace(encoder.dim, stored)
    if basis is not None and stored == basis.shape[1]:
        return StoredSpace(encoder.dim, stored, down=basis)
    compact = "" if basis is None else f", compact ones {basis.shape[1]}"
    raise HoldfastError(f"{folder}: its features have {encoder.dim} numbers{compact}, but the stored ones {stored}")


def _is_isometry(weight: Tensor) -> bool:
    gram = weight.T @ weight
    return bool((gram - torch.eye(len(gram))).abs().max() < _SAME)
