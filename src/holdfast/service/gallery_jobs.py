"""Calls of the endpoints to the gallery: in threads, with a timeout, and batched for images and additions."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from holdfast.encoders import Encoder, Preprocess
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.gallery import Gallery, Hit, Item, OpenGallery
from holdfast.gallery.models import batch_sizes, unit_row
from holdfast.gallery.versions import Version
from holdfast.pixels import open_image
from holdfast.service.batcher import Batcher, SetResult
from holdfast.service.errors import RequestError
from holdfast.service.log import LOG
from holdfast.service.request_bodies import Limits

Result = TypeVar("Result")

_STATS_AGE_S = 1.0
_STATS_AGE_ATTACHED_S = 30.0  # counting the rows of an attached table reads all of it
_DECODER_THREADS = 2  # each image that is being decoded may take 4 bytes per pixel


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search, with the names of ``Gallery.search``."""

    k: int
    filter: Mapping[str, Any] | None = None
    indexed_by: list[int] | None = None
    exact: bool = False


@dataclass(frozen=True)
class AddRequest:
    """Items of one request. Either all are stored or none."""

    items: list[Item]
    version: int


class GalleryJobs:
    """The gallery as the endpoints use it. Create and close it inside the running event loop.

    gallery: open, and closed by its owner.
    limits: of requests.
    name: the gallery's name as clients see it.
    """

    def __init__(self, gallery: OpenGallery, limits: Limits, *, name: str) -> None:
        self.gallery, self.limits, self.name = gallery, limits, name
        self._embedder = ImageEmbedder(gallery)
        self._threads = ThreadPoolExecutor((os.cpu_count() or 1) + 2, thread_name_prefix="search")
        self._decoders = ThreadPoolExecutor(_DECODER_THREADS, thread_name_prefix="decode")
        self.encoder: Batcher[DecodedImage, np.ndarray] = Batcher(
            self._embed_batch,
            max_batch=limits.encoder_batch or self._embedder.batch_size,
            wait_s=limits.encoder_wait_ms / 1000,
            name="encode",
        )
        self.writer: Batcher[AddRequest, int] = Batcher(
            self._store_batch, max_batch=limits.batch, wait_s=0, name="write"
        )
        self._stats: tuple[float, dict[str, Any]] | None = None

    @property
    def read_only(self) -> bool:
        """Whether the gallery is attached to another store."""
        return self.gallery.read_only is not None

    def require_writable(self) -> None:
        if self.read_only:
            raise RequestError(403, "the gallery is attached to a store and only reads it; write to the store itself")

    async def in_thread(self, function: Callable[..., Result], *arguments: Any, decodes: bool = False) -> Result:
        """The result of a call in a thread; 503 if it takes too long.

        decodes: the call decodes an image, which needs much memory; few of these run at once.
        """
        pool = self._decoders if decodes else self._threads
        return await self.with_timeout(asyncio.get_running_loop().run_in_executor(pool, function, *arguments))

    async def with_timeout(self, call: "asyncio.Future[Result] | Coroutine[Any, Any, Result]") -> Result:
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await call
        except TimeoutError:
            reason = f"not done within {self.limits.seconds:g} s: the service is busy; try again"
            raise RequestError(503, reason, {"Retry-After": "5"}) from None

    async def embed(self, image: bytes) -> tuple[np.ndarray, int]:
        """The vector of an image file's bytes by the newest version, and the number of that version."""
        decoded = await self.in_thread(self._decode, image, decodes=True)
        return await self.with_timeout(self.encoder.submit(decoded)), decoded.version.number

    async def search_image(self, image: bytes, options: SearchOptions) -> dict[str, Any]:
        while True:
            vector, version = await self.embed(image)
            try:
                return await self.in_thread(self.search_vector, vector, version, options)
            except HoldfastError:
                if self.has_version(version):
                    raise
                # A rollback removed the version after it had embedded the image: embed it again by the newest version.

    def search_vector(self, vector: np.ndarray, version: int | None, options: SearchOptions) -> dict[str, Any]:
        """version: the version that embedded the vector; None: the newest."""
        source = self.gallery.newest().number if version is None else version
        hits = self.gallery.search(vector=vector, version=source, **vars(options))
        return {"version": source, "hits": [_hit_json(hit) for hit in hits]}

    def search_id(self, name: str, options: SearchOptions) -> dict[str, Any]:
        source = self.get_item(name)["version"]
        hits = self.gallery.search(id=name, **vars(options))
        return {"version": source, "hits": [_hit_json(hit) for hit in hits]}

    def get_item(self, name: str) -> dict[str, Any]:
        found = self.gallery.get([name]).get(name)
        if found is None:
            raise RequestError(404, f"no item {name[:80]!r} in the gallery")
        return found

    async def add(self, items: list[Item], version: int) -> int:
        """Store the items; returns their version once they are on disk."""
        return await self.with_timeout(self.writer.submit(AddRequest(items, version)))

    def has_version(self, number: int) -> bool:
        return any(version.number == number for version in self.gallery.versions())

    async def stats(self) -> dict[str, Any]:
        """The gallery's ``stats``, cached for 1 s; for 30 s if the gallery is attached."""
        max_age = _STATS_AGE_ATTACHED_S if self.read_only else _STATS_AGE_S
        if self._stats is None or time.monotonic() - self._stats[0] > max_age:
            found = await self.in_thread(self.gallery.stats)
            self._stats = time.monotonic(), found
        return self._stats[1]

    def clear_stats(self) -> None:
        """Read the stats anew at the next call of ``stats``."""
        self._stats = None

    async def close(self) -> None:
        """Wait for running jobs and end the threads."""
        await self.encoder.close()
        await self.writer.close()
        await asyncio.to_thread(self._decoders.shutdown)
        await asyncio.to_thread(self._threads.shutdown)

    def _decode(self, image: bytes) -> "DecodedImage":
        return self._embedder.decode(image, max_pixels=self.limits.pixels)

    def _embed_batch(self, images: "list[DecodedImage]", set_result: SetResult[np.ndarray]) -> None:
        for index, vector in enumerate(self._embedder.embed(images)):
            set_result(index, vector)

    def _store_batch(self, requests: list[AddRequest], set_result: SetResult[int]) -> None:
        for version in dict.fromkeys(one.version for one in requests):
            indices = [index for index, one in enumerate(requests) if one.version == version]
            self._store(requests, indices, set_result)

    def _store(self, requests: list[AddRequest], indices: list[int], set_result: SetResult[int]) -> None:
        """Store these requests, all of one version, together; one by one if one of them is refused."""
        version = requests[indices[0]].version
        items = [item for index in indices for item in requests[index].items]
        stored = False

        def on_stored(count: int) -> None:  # the items are on disk; ``add`` may still build an index before it returns
            nonlocal stored
            stored = True
            for index in indices:
                set_result(index, version)

        assert isinstance(self.gallery, Gallery)  # see ``require_writable``
        try:
            self.gallery.add(items, version=version, batch_size=len(items), progress=on_stored)
        except HoldfastError as error:
            if stored:
                LOG.error("after the items were stored: %s", error)
            elif len(indices) == 1 or isinstance(error, UnavailableError):
                for index in indices:
                    set_result(index, error)
            else:
                for index in indices:
                    self._store(requests, [index], set_result)


def _hit_json(hit: Hit) -> dict[str, Any]:
    """A hit as clients see it: whether it has an image, but not the image's path."""
    return {
        "id": hit.id,
        "score": hit.score,
        "cosine": hit.cosine,
        "version": hit.version,
        "label": hit.label,
        "metadata": dict(hit.metadata),
        "image": hit.path is not None,
    }


@dataclass(frozen=True)
class DecodedImage:
    """An image, preprocessed for a version.

    version, encoder: the version that will embed the image.
    pixels: 1 x C x H x W.
    """

    version: Version
    encoder: Encoder
    pixels: Tensor


class ImageEmbedder:
    """Embeds images in two steps: any thread decodes one, then one forward pass embeds many."""

    def __init__(self, gallery: OpenGallery) -> None:
        self._models = gallery.models

    @property
    def batch_size(self) -> int:
        """The number of images for one call of ``embed`` that suits the device."""
        return batch_sizes(self._models.device).queries

    def takes_images(self) -> bool:
        """Whether the newest model embeds images, not vectors. Loads the model if necessary."""
        return isinstance(self._models.encoder(self._models.newest()).preprocess, Preprocess)

    def decode(self, image: bytes, *, max_pixels: int) -> DecodedImage:
        """Decode an image file's bytes; refused before decoding if its header gives more than ``max_pixels``."""
        version = self._models.newest()
        encoder = self._models.encoder(version)
        if not isinstance(encoder.preprocess, Preprocess):
            raise HoldfastError(f"version {version.number} takes no images; search it by vector")
        limit = min(max_pixels, encoder.preprocess.max_pixels)
        try:
            decoded = open_image(image, colour=encoder.preprocess.colour, max_pixels=limit)
        except HoldfastError as error:
            reason = (
                str(error)
                .removeprefix("the image: ")
                .replace("HEIC needs the extra heif", "HEIC needs the extra heif where the service runs")
            )
            raise HoldfastError(f"this image cannot be used: {reason}") from error
        return DecodedImage(version, encoder, encoder.preprocess(decoded))

    def embed(self, images: Sequence[DecodedImage]) -> list[np.ndarray | HoldfastError]:
        """The vector of each image as its version stores it (attached: the full feature), 1-D, or an error."""
        found: list[np.ndarray | HoldfastError] = [HoldfastError("not embedded")] * len(images)
        for number in {image.version.number for image in images}:  # more than one only during a registration
            indices = [index for index, image in enumerate(images) if image.version.number == number]
            first = images[indices[0]]
            pixels = torch.cat([images[index].pixels for index in indices])
            rows = self._models.image_vectors(pixels, first.version, first.encoder)
            for index, row in zip(indices, rows, strict=True):
                try:
                    found[index] = unit_row(row, "image", number)
                except HoldfastError as error:
                    found[index] = error
        return found
