"""The models of a gallery: they embed images and convert vectors between versions and their stored form.

Also used by attached galleries: batch sizes, preparation of one image, vectors of users as they are stored.
"""

import functools
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from holdfast.bridges import Bridge, ScoreScale
from holdfast.bridges.score_scale import SAME
from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.core.real_arrays import real_array
from holdfast.embedders.model_folder import change_basis
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.gallery_items import Item, StoredItem, checked
from holdfast.gallery.gallery_versions import BASIS, MODEL, NOTHING, Version, read_basis
from holdfast.gallery.version_bridges import VersionBridges

if TYPE_CHECKING:
    from holdfast.embedders.image_encoder import ImageEncoder
    from holdfast.embedders.model_inputs import ImageLike

OnRefused = Callable[[Item, HoldfastError], None]


@dataclass(frozen=True)
class EmbeddedItem:
    """An item that can be stored; its key is assigned later."""

    item: StoredItem
    vector: np.ndarray


class VersionQuery(NamedTuple):
    """A query for the items of one version, 1-D, and the scale that makes its cosines comparable between versions."""

    vector: np.ndarray
    scale: ScoreScale


class Models:
    """The versions of a gallery. Encoders and bases are read from its folder when first needed.

    device: where encoders are loaded and embed; ``auto`` is the GPU if there is one.
    rollback_version: the version that a rollback is removing.
    """

    def __init__(
        self, folder: GalleryFolder, versions: Sequence[Version], device: str, rollback_version: int | None = None
    ) -> None:
        self._folder, self.device = folder, device
        self._versions = {version.number: version for version in versions}
        self.rollback_version = rollback_version
        self._removed: dict[int, Version] = {}
        self._encoders: dict[int, ImageEncoder] = {}
        self._encoding = threading.RLock()  # one forward pass at a time: torch uses all cores for it anyway
        self.basis_of = functools.lru_cache(maxsize=2)(self._read_basis)
        self._converter = BasisConverter(self.basis_of)
        self._bridges = VersionBridges(folder)

    def _read_basis(self, number: int) -> np.ndarray | None:
        """The basis of a version; refused if it does not fit the vectors that the version stores."""
        basis, version = read_basis(self._folder.version(number)), self._versions.get(number)
        if version is not None and version.stored_dim != (version.dim if basis is None else basis.shape[1]):
            raise HoldfastError(
                f"{self._folder.version(number) / BASIS}: missing, or not for vectors of {version.stored_dim} numbers; "
                "restore it from a backup"
            )
        return basis

    def versions(self) -> list[Version]:
        return list(self._versions.values())

    def newest(self) -> Version:
        """The version that embeds new items and queries: the last one that is not being rolled back."""
        return [one for one in self.versions() if one.number != self.rollback_version][-1]

    def version(self, number: int | None) -> Version:
        """The version with this number; None is the newest."""
        if number is None:
            return self.newest()
        found = self._versions.get(number) or self._removed.get(number)
        if found is None:
            raise unknown_name("version", str(number), self._versions)
        return found

    def refuse_unreachable(self, version: Version) -> None:
        """Refuse new items of a version that queries of a newer one cannot search."""
        for newer in self.versions():
            if newer.number > version.number and not newer.can_compare(version):
                raise HoldfastError(
                    f"version {version.number} cannot take items: version {newer.number} has no bridge to it; use "
                    f"version {self.newest().number}"
                )

    def add_version(self, version: Version, encoder: "ImageEncoder | None") -> None:
        """Add a registered version, with its model if that is loaded. Other threads see the old or the new versions."""
        if encoder is not None:
            self._encoders[version.number] = encoder
        self._versions = {**self._versions, version.number: version}

    def remove_version(self, number: int) -> None:
        """Remove a version. Running searches may still use it, so its files stay until ``delete_model``."""
        self._removed[number] = self._versions[number]
        self._versions = {known: one for known, one in self._versions.items() if known != number}
        self.rollback_version = None

    def delete_model(self, number: int) -> None:
        """Delete the model's files: of a version that was not registered after all, or that no search uses any more."""
        shutil.rmtree(self._folder.version(number), ignore_errors=True)
        self._encoders.pop(number, None)
        self._removed.pop(number, None)
        self._bridges.forget(number)
        self.basis_of.cache_clear()
        self._converter = BasisConverter(self.basis_of)

    def encoder(self, version: Version) -> "ImageEncoder":
        with self._encoding:
            if version.number not in self._encoders:
                # Only the encoder in use stays in memory: calls rarely alternate between versions.
                self._encoders = {version.number: load_encoder(self._folder, version, self.device)}
            return self._encoders[version.number]

    def bridge(self, source: Version, target: Version) -> Bridge | None:
        """The bridge that carries vectors of ``source`` into the space of ``target``; None if there is none."""
        return self._bridges.between(source, target)

    def queries_for(self, vector: np.ndarray, source: Version, targets: Sequence[Version]) -> list["VersionQuery"]:
        """A query as ``source`` stores it, 1-D, as one query for the items of each of ``targets``.

        Bridged where there is a bridge, else converted to the basis of the target.
        """
        mapped = self._bridges.map_query(vector, source, targets)
        return [self._query(vector, source, target, mapped.get(target.number)) for target in targets]

    def _query(self, vector: np.ndarray, source: Version, target: Version, mapped: np.ndarray | None) -> "VersionQuery":
        if source.number == target.number:
            return VersionQuery(vector, SAME)
        bridge = self.bridge(source, target)
        if mapped is None:
            (mapped,) = self._converter.convert(vector[None], source, target)
        return VersionQuery(mapped, SAME if bridge is None else bridge.scale)

    def stored_form(self, vector: ArrayLike, version: Version, what: str) -> np.ndarray:
        """A vector from a user as ``version`` stores it, 1-D; ``what`` names it in errors."""
        return stored_form(version, lambda: self.basis_of(version.number), vector, what)

    def query_vector(self, image: "ImageLike | None", vector: ArrayLike | None, version: Version) -> np.ndarray:
        """An image, or a vector from a user, as ``version`` stores it, 1-D."""
        if vector is not None:
            return self.stored_form(vector, version, "query")
        encoder = self.encoder(version)
        (row,) = self.image_vectors(prepare_image(encoder, image), version, encoder)
        return unit_row(row, "image", version.number)

    def image_vectors(self, images: np.ndarray, version: Version, encoder: "ImageEncoder") -> np.ndarray:
        """Prepared images (N x H x W x C) as ``version`` stores them, N x stored_dim; a zero feature stays zero."""
        with self._encoding:
            full = encoder.embed(images)
        return self.stored_rows(full, version)

    def stored_rows(self, full: np.ndarray, version: Version) -> np.ndarray:
        """Unit features of ``version`` (N x dim) as it stores them, N x stored_dim; see ``unit_row``."""
        basis = self.basis_of(version.number)
        return full if basis is None else full @ basis

    def embed_items(self, items: Sequence[Item], version: Version, refused: OnRefused | None) -> list[EmbeddedItem]:
        """Items with their vectors. Of items with the same id the last good one is kept.

        refused: called with each bad item and the reason; None raises the reason.
        """
        found: dict[str, EmbeddedItem] = {}
        opened: dict[str, tuple[Item, StoredItem, np.ndarray]] = {}
        encoder = self.encoder(version) if any(item.vector is None for item in items) else None
        batch_size = 0 if encoder is None else encoder.batch_size

        def refuse(item: Item, error: HoldfastError) -> None:
            if refused is None:
                raise error
            refused(item, error)

        def embed_opened() -> None:
            assert encoder is not None
            rows = self.image_vectors(np.concatenate([image for _, _, image in opened.values()]), version, encoder)
            for (item, stored, _), row in zip(opened.values(), rows, strict=True):
                try:
                    found[stored.id] = EmbeddedItem(stored, unit_row(row, f"item {stored.id!r}", version.number))
                except HoldfastError as error:
                    refuse(item, error)
            opened.clear()

        for item in items:
            try:
                stored = checked(item, version.number)
                if item.vector is None:
                    assert encoder is not None
                    opened[stored.id] = (item, stored, _open_image(item, encoder))
                elif item.image is not None:
                    raise HoldfastError(f"item {item.id!r}: give an image or a vector, not both")
                else:
                    vector = self.stored_form(item.vector, version, f"item {item.id!r}")
                    found[stored.id] = EmbeddedItem(stored, vector)
                    opened.pop(stored.id, None)
            except HoldfastError as error:
                refuse(item, error)
            if opened and len(opened) == batch_size:
                embed_opened()
        if opened:
            embed_opened()
        return list(found.values())


def _open_image(item: Item, encoder: "ImageEncoder") -> np.ndarray:
    image = item.path if item.image is None else item.image
    if image is None:
        raise HoldfastError(f"item {item.id!r}: has neither image nor vector nor path")
    try:
        return prepare_image(encoder, image)
    except HoldfastError as error:
        raise HoldfastError(f"item {item.id!r}: {error}") from error


def load_encoder(folder: GalleryFolder, version: Version, device: str) -> "ImageEncoder":
    """The model of a version on a device; refused for a version of vectors alone."""
    if version.embeds == NOTHING:
        raise HoldfastError(
            f"version {version.number} is of vectors alone, without a model that embeds; give vectors of it"
        )
    from holdfast.embedders.image_encoder import ImageEncoder

    return ImageEncoder.load(folder.version(version.number) / MODEL, device)


def device_name(device: object) -> str:
    """The name of a device; one other than ``auto`` and ``cpu`` is refused if it is not there.

    ``auto`` is what the environment variable HOLDFAST_DEVICE names, else the GPU if there is one.
    """
    if str(device) == "auto":
        device = os.environ.get("HOLDFAST_DEVICE") or "auto"
    if str(device) in ("auto", "cpu"):
        return str(device)
    from holdfast.embedders.image_encoder import checked_device

    return checked_device(str(device))


def prepare_image(encoder: "ImageEncoder", image: "ImageLike | None") -> np.ndarray:
    """One image, opened and brought to the size that the model takes: uint8 1 x H x W x C."""
    if image is None:
        raise HoldfastError("no image, or a model that takes none")
    if encoder.input.takes_vectors and not isinstance(image, np.ndarray | list | tuple):
        takes = f"the model takes vectors of {encoder.input.channels} numbers, not images"
        add = "add them from a file (holdfast gallery add GALLERY FILE.npz --version N)"
        raise HoldfastError(f"{takes}; {add}, search by --id, in Python or by the service (POST /v1/search/vector)")
    arrays = encoder.input.arrays(image)
    if len(arrays) != 1:
        raise HoldfastError(f"one image was expected, found {len(arrays)}")
    return arrays


OUTSIDE_TOLERANCE = 1e-3
"""How much of a full feature's length may lie outside its model's span; rounding leaves about 1e-7."""


def stored_form(version: Version, basis: Callable[[], np.ndarray | None], given: ArrayLike, what: str) -> np.ndarray:
    """One vector of a version as it is stored: unit length, float32, 1-D.

    A full feature outside the span of its model is refused: its compact form would be another vector.

    version: the version that made the vector.
    basis: returns the version's compact basis; called only for a full feature that is stored compactly.
    given: full or compact, of any length.
    what: names the vector in errors.
    """
    try:
        vector = real_array(given, what, np.float64)  # the length of a float32 vector may not fit float32
    except (TypeError, ValueError, OverflowError):
        raise HoldfastError(f"{what}: a vector is a list of numbers") from None
    if vector.ndim != 1 or vector.size not in version.sizes:
        sizes = " or ".join(map(str, version.sizes))
        shape = " x ".join(str(side) for side in vector.shape) or "one number"
        raise HoldfastError(f"{what}: {shape}, but a vector of version {version.number} has {sizes} numbers")
    if not np.isfinite(vector).all():
        raise HoldfastError(f"{what}: NaN or infinity in the vector")
    largest = float(np.abs(vector).max())
    if largest < 1e-30:
        raise HoldfastError(f"{what}: a zero vector has no direction")
    vector = vector / largest
    vector = (vector / np.linalg.norm(vector)).astype(np.float32)
    if vector.size == version.stored_dim:
        return vector
    own_basis = basis()
    assert own_basis is not None
    return unit_row(vector @ own_basis, what, version.number)


def unit_row(row: np.ndarray, what: str, number: int) -> np.ndarray:
    """The compact form (1-D) of a unit feature of version ``number``, with the rounding error of its length removed."""
    length = float(np.linalg.norm(row))
    if not np.isfinite(length):
        raise HoldfastError(f"{what}: version {number} gives NaN or infinity")
    if length < 1e-6:
        raise HoldfastError(f"{what}: version {number} gives a zero feature, which has no direction")
    if abs(length - 1) > OUTSIDE_TOLERANCE:
        outside = f"only {length:.3f} of its length is in the span of version {number}'s features"
        raise HoldfastError(f"{what}: {outside}; is the vector another model's?")
    return row / np.float32(length)


class BasisConverter:
    """Converts stored vectors of one version into the basis of another; each matrix is computed once."""

    def __init__(self, basis_of: Callable[[int], np.ndarray | None]) -> None:
        self._basis_of = basis_of
        self._matrices: dict[tuple[int, int], np.ndarray] = {}

    def convert(self, vectors: np.ndarray, source: Version, target: Version) -> np.ndarray:
        """N x stored_dim of ``source`` -> N x stored_dim of ``target``; lengths, at most 1, belong to the scores."""
        if source.number == target.number:
            return vectors
        pair = (source.number, target.number)
        if pair not in self._matrices:
            bases = self._basis_of(source.number), self._basis_of(target.number)
            self._matrices[pair] = change_basis(*bases, source.stored_dim)
        product: Any = vectors @ self._matrices[pair]
        return np.ascontiguousarray(product, dtype=np.float32)


@dataclass(frozen=True)
class BatchSizes:
    """Batch sizes by purpose.

    add: items of one durable write of ``add``.
    reembed: items of one durable write of a backfill or a rollback.
    queries: images of several clients that a service embeds together.
    """

    add: int
    reembed: int
    queries: int


_ON_CPU = BatchSizes(add=256, reembed=32, queries=32)
# A GPU is idle while a batch is written and while the next one is collected, so batches are larger there.
_ON_GPU = BatchSizes(add=512, reembed=256, queries=256)


def batch_sizes(encoder: "ImageEncoder | None") -> BatchSizes:
    """The sizes for the kind of device that embeds; None if nothing is embedded."""
    return _ON_GPU if encoder is not None and encoder.on_gpu else _ON_CPU
