"""A gallery's models at work: images and vectors in, vectors as they are stored out.

Where vectors lie: full features, their compact form by version, and the way from one version to another.
"""

import functools
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.encoders import Encoder, VectorInput
from holdfast.encoders.compact import carried_query, compacted
from holdfast.encoders.preprocess import OneImage
from holdfast.errors import HoldfastError, unknown_name
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.forward_pass import batch_sizes, enough_memory, full_features, images_at_once
from holdfast.gallery.items import Item, Stored, checked
from holdfast.gallery.versions import MODEL, Version, read_basis

Refused = Callable[[Item, HoldfastError], None]


@dataclass(frozen=True)
class Prepared:
    """An item that is ready to be stored; its key is not known yet."""

    item: Stored
    vector: np.ndarray


class Models:
    """The versions of a gallery; encoders and bases are read from its folder when first needed.

    device: where encoders are loaded and embed.
    """

    def __init__(self, folder: GalleryFolder, catalogue: Catalogue, device: torch.device) -> None:
        self._folder = folder
        self.device, self.sizes = device, batch_sizes(device)
        self._versions = {number: Version(**record) for number, record in catalogue.versions().items()}
        self.leaving: int | None = catalogue.setting("leaving")  # the version that a rollback is taking out
        self._dismissed: dict[int, Version] = {}
        self._encoders: dict[int, Encoder] = {}
        self._encoding = threading.RLock()  # one forward pass at a time: torch has the cores' threads anyway
        self.basis_of = functools.lru_cache(maxsize=2)(lambda number: read_basis(folder.version(number)))
        self._carriage = Carriage(self.basis_of)

    def versions(self) -> list[Version]:
        return list(self._versions.values())

    def newest(self) -> Version:
        """The version that embeds what is added and asked: the last one that is not being taken out."""
        return [one for one in self.versions() if one.number != self.leaving][-1]

    def version(self, number: int | None) -> Version:
        """The version of this number; None is the newest."""
        if number is None:
            return self.newest()
        found = self._versions.get(number) or self._dismissed.get(number)
        if found is None:
            raise unknown_name("version", str(number), self._versions)
        return found

    def welcome(self, version: Version, encoder: Encoder) -> None:
        """A version that is registered; whoever looks sees the versions before or after, never something between."""
        self._encoders[version.number] = encoder
        self._versions = {**self._versions, version.number: version}

    def dismiss(self, number: int) -> None:
        """A version that was taken out; searches under way may still name it, so its files stay until ``forget``."""
        self._dismissed[number] = self._versions[number]
        self._versions = {known: one for known, one in self._versions.items() if known != number}
        self.leaving = None

    def forget(self, number: int) -> None:
        """Remove the model of a version that was not taken in after all, or that no search holds any longer."""
        shutil.rmtree(self._folder.version(number), ignore_errors=True)
        self._encoders.pop(number, None)
        self._dismissed.pop(number, None)
        self.basis_of.cache_clear()
        self._carriage = Carriage(self.basis_of)

    def carry(self, vectors: np.ndarray, source: Version, target: Version) -> np.ndarray:
        return self._carriage.carry(vectors, source, target)

    def stored_form(self, vector: ArrayLike, version: Version, what: str) -> np.ndarray:
        """A vector that a user gave, 1-D, as ``version`` stores it."""
        return stored_form(version, lambda: self.basis_of(version.number), vector, what)

    def query_vector(self, image: OneImage | None, vector: ArrayLike | None, version: Version) -> np.ndarray:
        """An image, or a vector that a user gave, as ``version`` stores it, 1-D."""
        if vector is not None:
            return self.stored_form(vector, version, "query")
        encoder = self.encoder(version)
        (row,) = self.image_vectors(ready(encoder, image), version, encoder)
        return unit_row(row, "image", version.number)

    def image_vectors(self, images: Tensor, version: Version, encoder: Encoder) -> np.ndarray:
        """Preprocessed images (N x C x H x W) as ``version`` stores them, N x stored_dim; a zero feature stays zero."""
        with self._encoding:
            full = full_features(encoder, images, self.device)
        basis = self.basis_of(version.number)
        found: np.ndarray = (full if basis is None else compacted(full, basis)).numpy()
        return found

    def embedded(self, items: Sequence[Item], version: Version, refused: Refused | None) -> list[Prepared]:
        """Items ready to be stored; of an id given twice the last good one. A bad one is refused, or raises."""
        found: dict[str, Prepared] = {}
        opened: dict[str, tuple[Item, Stored, Tensor]] = {}
        encoder = self.encoder(version) if any(item.vector is None for item in items) else None
        at_once = 0 if encoder is None else images_at_once(encoder, self.device)

        def refuse(item: Item, error: HoldfastError) -> None:
            if refused is None:
                raise error
            refused(item, error)

        def embed_opened() -> None:
            assert encoder is not None
            rows = self.image_vectors(torch.cat([image for _, _, image in opened.values()]), version, encoder)
            for (item, stored, _), row in zip(opened.values(), rows, strict=True):
                try:
                    found[stored.id] = Prepared(stored, unit_row(row, f"item {stored.id!r}", version.number))
                except HoldfastError as error:
                    refuse(item, error)
            opened.clear()

        for item in items:
            try:
                stored = checked(item, 0, version.number)
                if item.vector is None:
                    assert encoder is not None
                    opened[stored.id] = (item, stored, _opened(item, encoder))
                else:
                    found[stored.id] = Prepared(stored, self._given(item, version))
                    opened.pop(stored.id, None)
            except HoldfastError as error:
                refuse(item, error)
            if opened and len(opened) == at_once:
                embed_opened()
        if opened:
            embed_opened()
        return list(found.values())

    def _given(self, item: Item, version: Version) -> np.ndarray:
        if item.image is not None:
            raise HoldfastError(f"item {item.id!r}: give an image or a vector, not both")
        assert item.vector is not None
        return self.stored_form(item.vector, version, f"item {item.id!r}")

    def encoder(self, version: Version) -> Encoder:
        with self._encoding:
            if version.number not in self._encoders:
                folder = self._folder.version(version.number) / MODEL
                # Only the one in use stays in memory: versions come one after the other, seldom back and forth.
                with enough_memory(self.device):
                    self._encoders = {version.number: Encoder.from_pretrained(folder, device=self.device)}
            return self._encoders[version.number]


def _opened(item: Item, encoder: Encoder) -> Tensor:
    image = item.path if item.image is None else item.image
    if image is None:
        raise HoldfastError(f"item {item.id!r}: has neither image nor vector nor path")
    try:
        return ready(encoder, image)
    except HoldfastError as error:
        raise HoldfastError(f"item {item.id!r}: {error}") from error


def ready(encoder: Encoder, image: OneImage | None) -> Tensor:
    """One image, opened and preprocessed, 1 x C x H x W."""
    if encoder.preprocess is None or image is None:
        raise HoldfastError("no image, or a model that takes none")
    if isinstance(encoder.preprocess, VectorInput) and isinstance(image, str | Path | PIL.Image.Image):
        takes = f"the model takes vectors of {encoder.preprocess.channels} numbers, not images"
        add = "add them from a file (holdfast gallery add GALLERY FILE.npz --version N)"
        raise HoldfastError(f"{takes}; {add}, search by --id, in Python or by the service (POST /v1/search/vector)")
    tensor = encoder.preprocess(image)
    if len(tensor) != 1:
        raise HoldfastError(f"one image was expected, found {len(tensor)}")
    return tensor


OUTSIDE = 1e-3
"""How much of a full feature's length may lie outside its model's span: rounding leaves some 1e-7."""


def stored_form(version: Version, basis: Callable[[], Tensor | None], given: ArrayLike, what: str) -> np.ndarray:
    """One vector of a version, full or compact, of any length, as it is stored: unit, float32.

    A full feature that its model cannot have made is refused: its compact form would be another vector.
    """
    try:
        vector = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError):
        raise HoldfastError(f"{what}: a vector is a list of numbers") from None
    if vector.ndim != 1 or vector.size not in (version.dim, version.stored_dim):
        sizes = " or ".join(str(size) for size in sorted({version.dim, version.stored_dim}))
        shape = " x ".join(str(side) for side in vector.shape) or "one number"
        raise HoldfastError(f"{what}: {shape}, but a vector of version {version.number} has {sizes} numbers")
    if not np.isfinite(vector).all():
        raise HoldfastError(f"{what}: NaN or infinity in the vector")
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if length < 1e-30:
        raise HoldfastError(f"{what}: a zero vector has no direction")
    vector = (vector / length).astype(np.float32)
    if vector.size == version.stored_dim:
        return vector
    own = basis()
    assert own is not None
    return unit_row(compacted(torch.from_numpy(vector)[None], own)[0].numpy(), what, version.number)


def unit_row(row: np.ndarray, what: str, number: int) -> np.ndarray:
    """The compact form of a unit feature (1-D), made unit again where rounding left it a little off."""
    length = float(np.linalg.norm(row))
    if not np.isfinite(length):
        raise HoldfastError(f"{what}: version {number} gives NaN or infinity")
    if length < 1e-6:
        raise HoldfastError(f"{what}: version {number} gives a zero feature, which has no direction")
    if abs(length - 1) > OUTSIDE:
        outside = f"only {length:.3f} of its length lies where features of version {number} lie"
        raise HoldfastError(f"{what}: {outside}; is the vector another model's?")
    return row / np.float32(length)


class Carriage:
    """Carries stored vectors of one version to where another version's lie; each small matrix is made once."""

    def __init__(self, basis_of: Callable[[int], Tensor | None]) -> None:
        self._basis_of = basis_of
        self._matrices: dict[tuple[int, int], np.ndarray] = {}

    def carry(self, vectors: np.ndarray, source: Version, target: Version) -> np.ndarray:
        """N x stored_dim of ``source`` -> N x stored_dim of ``target``; the length, at most 1, belongs to the score."""
        if source.number == target.number:
            return vectors
        pair = (source.number, target.number)
        if pair not in self._matrices:
            own, other = self._basis_of(source.number), self._basis_of(target.number)
            identity = torch.eye(source.stored_dim)
            self._matrices[pair] = carried_query(identity, own, other).contiguous().numpy()
        product: Any = vectors @ self._matrices[pair]
        return np.ascontiguousarray(product, dtype=np.float32)
