"""A gallery's models at work: images and vectors in, vectors as they are stored out."""

import functools
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.backbones import Encoder
from holdfast.backbones.preprocess import OneImage
from holdfast.errors import HoldfastError, unknown_name
from holdfast.gallery.catalogue import Catalogue
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.items import Item, Stored, checked
from holdfast.gallery.spaces import Carriage, compact_form, stored_form
from holdfast.gallery.versions import MODEL, Version, read_basis

Refused = Callable[[Item, HoldfastError], None]


@dataclass(frozen=True)
class Prepared:
    """An item that is ready to be stored; its key is not known yet."""

    item: Stored
    vector: np.ndarray


class Models:
    """The versions of a gallery; encoders and bases are read from its folder when first needed."""

    def __init__(self, folder: GalleryFolder, catalogue: Catalogue) -> None:
        self._folder = folder
        self._versions = {number: Version(**record) for number, record in catalogue.versions().items()}
        self._encoders: dict[int, Encoder] = {}
        self._encoding = threading.RLock()  # one forward pass at a time: torch has the cores' threads anyway
        self._basis_of = functools.lru_cache(maxsize=2)(lambda number: read_basis(folder.version(number)))
        self._carriage = Carriage(self._basis_of)

    def versions(self) -> list[Version]:
        return list(self._versions.values())

    def newest(self) -> Version:
        return self.versions()[-1]

    def version(self, number: int | None) -> Version:
        """The version of this number; None is the newest."""
        if number is None:
            return self.newest()
        if number not in self._versions:
            raise unknown_name("version", str(number), self._versions)
        return self._versions[number]

    def welcome(self, version: Version, encoder: Encoder) -> None:
        """A version that is registered; whoever looks sees the versions before or after, never something between."""
        self._encoders[version.number] = encoder
        self._versions = {**self._versions, version.number: version}

    def forget(self, number: int) -> None:
        """A model that was not taken in after all."""
        shutil.rmtree(self._folder.version(number), ignore_errors=True)
        self._basis_of.cache_clear()
        self._carriage = Carriage(self._basis_of)

    def carry(self, vectors: np.ndarray, source: Version, target: Version) -> np.ndarray:
        return self._carriage.carry(vectors, source, target)

    def stored_form(self, vector: ArrayLike, version: Version, what: str) -> np.ndarray:
        """A vector that a user gave, 1-D, as ``version`` stores it."""
        return stored_form(version, lambda: self._basis_of(version.number), vector, what)

    def image_vector(self, image: OneImage | None, version: Version) -> np.ndarray:
        """An image as ``version`` stores it, 1-D."""
        encoder = self._encoder(version)
        return self.image_vectors(ready(encoder, image), version, encoder)[0]

    def image_vectors(
        self, images: Tensor, version: Version, encoder: Encoder, names: Sequence[str] | None = None
    ) -> np.ndarray:
        """Preprocessed images (N x C x H x W) as ``version`` stores them, N x stored_dim."""
        with self._encoding:
            full = encoder.encode(images)
        return compact_form(full, self._basis_of(version.number), names or ["image"] * len(full), version.number)

    def embedded(self, items: Sequence[Item], version: Version, refused: Refused | None) -> list[Prepared]:
        """Items ready to be stored, of an id given twice the last. A bad one is refused, or its error raised."""
        found: dict[str, Prepared] = {}
        waiting: list[tuple[Stored, Tensor]] = []
        for item in items:
            try:
                stored = checked(item, 0, version.number)
                found.pop(stored.id, None)
                waiting = [one for one in waiting if one[0].id != stored.id]
                if item.vector is not None:
                    if item.image is not None:
                        raise HoldfastError(f"item {stored.id!r}: give an image or a vector, not both")
                    vector = self.stored_form(item.vector, version, f"item {stored.id!r}")
                    found[stored.id] = Prepared(stored, vector)
                    continue
                image = item.path if item.image is None else item.image
                if image is None:
                    raise HoldfastError(f"item {stored.id!r}: has neither image nor vector nor path")
                waiting.append((stored, _readable(self._encoder(version), image, stored.id)))
            except HoldfastError as error:
                if refused is None:
                    raise
                refused(item, error)
        if waiting:
            encoder, names = self._encoder(version), [f"item {stored.id!r}" for stored, _ in waiting]
            vectors = self.image_vectors(torch.cat([image for _, image in waiting]), version, encoder, names)
            found |= {stored.id: Prepared(stored, vector) for (stored, _), vector in zip(waiting, vectors, strict=True)}
        return list(found.values())

    def _encoder(self, version: Version) -> Encoder:
        with self._encoding:
            if version.number not in self._encoders:
                # Only the one in use stays in memory: versions come one after the other, seldom back and forth.
                self._encoders = {version.number: Encoder.from_pretrained(self._folder.version(version.number) / MODEL)}
            return self._encoders[version.number]


def ready(encoder: Encoder, image: OneImage | None) -> Tensor:
    """One image, opened and preprocessed, 1 x C x H x W."""
    if encoder.preprocess is None or image is None:
        raise HoldfastError("no image, or a model that takes none")
    tensor = encoder.preprocess(image)
    if len(tensor) != 1:
        raise HoldfastError(f"one image was expected, found {len(tensor)}")
    return tensor


def _readable(encoder: Encoder, image: OneImage, name: str) -> Tensor:
    try:
        return ready(encoder, image)
    except HoldfastError as error:
        raise HoldfastError(f"item {name!r}: {error}") from error
