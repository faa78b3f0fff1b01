"""What the service does with a gallery: slow work in threads, images and writes of several clients together.

Images of several callers embedded together by the newest version, as a server does it.
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from holdfast.encoders import Encoder, Preprocess
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.gallery import AttachedGallery, Gallery, Hit, Item
from holdfast.gallery.forward_pass import batch_sizes
from holdfast.gallery.models import unit_row
from holdfast.gallery.versions import Version
from holdfast.pixels import open_image
from holdfast.service.batcher import Answer, Batcher
from holdfast.service.errors import LOG, RefusedError
from holdfast.service.request_bodies import Limits

if TYPE_CHECKING:
    from holdfast.gallery.attached.gallery import AttachedGallery, AttachedModels
    from holdfast.gallery.gallery import Gallery
    from holdfast.gallery.models import Models


@dataclass(frozen=True)
class OpenedImage:
    """One image, preprocessed for the version that is to embed it, 1 x C x H x W."""

    version: Version
    encoder: Encoder
    pixels: Tensor


class ImageEmbedder:
    """The two halves of embedding an image: opening, which any thread may do, and one forward pass for many."""

    def __init__(self, gallery: "Gallery | AttachedGallery") -> None:
        self._models: Models | AttachedModels = gallery._models

    @property
    def at_once(self) -> int:
        """How many images it is best to collect for one call of ``embed``."""
        return batch_sizes(self._models.device).queries

    def takes_images(self) -> bool:
        """Load the newest model where it is not yet; whether images can be given to it."""
        return isinstance(self._models.encoder(self._models.newest()).preprocess, Preprocess)

    def open(self, image: bytes, *, max_pixels: int) -> OpenedImage:
        """Decode the bytes of an image file; refused where its header says more than ``max_pixels``."""
        version = self._models.newest()
        encoder = self._models.encoder(version)
        if not isinstance(encoder.preprocess, Preprocess):
            raise HoldfastError(f"version {version.number} takes no images; search it by vector")
        limit = min(max_pixels, encoder.preprocess.max_pixels)
        decoded = open_image(image, colour=encoder.preprocess.colour, max_pixels=limit)
        return OpenedImage(version, encoder, encoder.preprocess(decoded))

    def embed(self, images: Sequence[OpenedImage]) -> list[np.ndarray | HoldfastError]:
        """For each image its vector, 1-D, as its version stores it (attached: its full feature), or why it has none."""
        found: list[np.ndarray | HoldfastError] = [HoldfastError("not embedded")] * len(images)
        for number in {image.version.number for image in images}:  # two only while a version is being registered
            places = [place for place, image in enumerate(images) if image.version.number == number]
            first = images[places[0]]
            pixels = torch.cat([images[place].pixels for place in places])
            rows = self._models.image_vectors(pixels, first.version, first.encoder)
            for place, row in zip(places, rows, strict=True):
                try:
                    found[place] = unit_row(row, "image", number)
                except HoldfastError as error:
                    found[place] = error
        return found


Result = TypeVar("Result")

_STATS_SECONDS = 1.0
_STATS_SECONDS_ATTACHED = 30.0  # to count somebody else's table means to read it
_OPENERS = 2  # images decoded at once: each may take 4 bytes a pixel


@dataclass(frozen=True)
class Addition:
    """Items of one request, all stored or none."""

    items: list[Item]
    version: int


@dataclass(frozen=True)
class Asked:
    """How many hits a request wants, and which items may be among them; named as ``Gallery.search`` names them."""

    k: int
    filter: Mapping[str, Any] | None = None
    indexed_by: list[int] | None = None
    exact: bool = False


class Work:
    """The gallery behind the endpoints; made and closed inside the running event loop."""

    def __init__(self, gallery: Gallery | AttachedGallery, limits: Limits, *, name: str) -> None:
        self.gallery, self.limits, self.name = gallery, limits, name
        self._embedder = ImageEmbedder(gallery)
        self._threads = ThreadPoolExecutor((os.cpu_count() or 1) + 2, thread_name_prefix="search")
        self._openers = ThreadPoolExecutor(_OPENERS, thread_name_prefix="open")
        self.encoder: Batcher[OpenedImage, np.ndarray] = Batcher(
            self._embed,
            most=limits.encoder_batch or self._embedder.at_once,
            wait_s=limits.encoder_wait_ms / 1000,
            name="encode",
        )
        self.writer: Batcher[Addition, int] = Batcher(self._store, most=limits.batch, wait_s=0, name="write")
        self._stats: tuple[float, dict[str, Any]] | None = None

    @property
    def read_only(self) -> bool:
        """Whether the gallery is attached to somebody else's store."""
        return isinstance(self.gallery, AttachedGallery)

    def demand_writable(self) -> None:
        if self.read_only:
            raise RefusedError(403, "the gallery is attached to a store that is only read; write to that store itself")

    async def run(self, function: Callable[..., Result], *arguments: Any, opening: bool = False) -> Result:
        """A call in a thread; 503 where it takes too long."""
        loop = asyncio.get_running_loop()
        pool = self._openers if opening else self._threads
        return await self.in_time(loop.run_in_executor(pool, function, *arguments))

    async def in_time(self, waiting: "asyncio.Future[Result] | Coroutine[Any, Any, Result]") -> Result:
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await waiting
        except TimeoutError:
            reason = f"not done within {self.limits.seconds:g} s: the service is busy; try again"
            raise RefusedError(503, reason, {"Retry-After": "5"}) from None

    async def embed(self, image: bytes) -> tuple[np.ndarray, int]:
        """An image's vector by the newest version, and which that was."""
        opened = await self.run(self._open, image, opening=True)
        return await self.in_time(self.encoder.ask(opened)), opened.version.number

    async def search_image(self, image: bytes, asked: Asked) -> dict[str, Any]:
        while True:
            vector, version = await self.embed(image)
            try:
                return await self.run(self.search_vector, vector, version, asked)
            except HoldfastError:
                if self.knows(version):
                    raise  # otherwise that version was taken out meanwhile: ask the one that is newest now

    def search_vector(self, vector: np.ndarray, version: int | None, asked: Asked) -> dict[str, Any]:
        source = self.gallery.newest().number if version is None else version
        hits = self.gallery.search(vector=vector, version=source, **vars(asked))
        return {"version": source, "hits": [hit_json(hit) for hit in hits]}

    def search_id(self, name: str, asked: Asked) -> dict[str, Any]:
        source = self.item(name)["version"]
        hits = self.gallery.search(id=name, **vars(asked))
        return {"version": source, "hits": [hit_json(hit) for hit in hits]}

    def item(self, name: str) -> dict[str, Any]:
        found = self.gallery.get([name]).get(name)
        if found is None:
            raise RefusedError(404, f"no item {name[:80]!r} in the gallery")
        return found

    async def add(self, items: list[Item], version: int) -> int:
        """The version that the items were added to, once they are on disk."""
        return await self.in_time(self.writer.ask(Addition(items, version)))

    def knows(self, version: int) -> bool:
        return any(one.number == version for one in self.gallery.versions())

    async def stats(self) -> dict[str, Any]:
        """The gallery's ``stats``, at most a second old, half a minute where it is attached."""
        oldest = _STATS_SECONDS_ATTACHED if self.read_only else _STATS_SECONDS
        if self._stats is None or time.monotonic() - self._stats[0] > oldest:
            found = await self.run(self.gallery.stats)
            self._stats = time.monotonic(), found
        return self._stats[1]

    def forget_stats(self) -> None:
        self._stats = None

    async def close(self) -> None:
        await self.encoder.close()
        await self.writer.close()
        await asyncio.to_thread(self._openers.shutdown)
        await asyncio.to_thread(self._threads.shutdown)

    def _open(self, image: bytes) -> OpenedImage:
        return self._embedder.open(image, max_pixels=self.limits.pixels)

    def _embed(self, images: list[OpenedImage], answer: Answer[np.ndarray]) -> None:
        for place, vector in enumerate(self._embedder.embed(images)):
            answer(place, vector)

    def _store(self, additions: list[Addition], answer: Answer[int]) -> None:
        for version in dict.fromkeys(one.version for one in additions):
            self._store_some(additions, [n for n, one in enumerate(additions) if one.version == version], answer)

    def _store_some(self, additions: list[Addition], places: list[int], answer: Answer[int]) -> None:
        """Store these together; where one of them is bad, one by one."""
        version = additions[places[0]].version
        items = [item for place in places for item in additions[place].items]
        stored = False

        def tell(done: int) -> None:  # on disk: answered now, though an index may be built before ``add`` returns
            nonlocal stored
            stored = True
            for place in places:
                answer(place, version)

        try:
            self.gallery.add(items, version=version, batch_size=len(items), progress=tell)
        except HoldfastError as error:
            if stored:
                LOG.error("after items were stored: %s", error)
            elif len(places) == 1 or isinstance(error, UnavailableError):
                for place in places:
                    answer(place, error)
            else:
                for place in places:
                    self._store_some(additions, [place], answer)


def hit_json(hit: Hit) -> dict[str, Any]:
    """A hit as clients see it: whether there is an image, never where."""
    return {
        "id": hit.id,
        "score": hit.score,
        "version": hit.version,
        "label": hit.label,
        "metadata": dict(hit.metadata),
        "image": hit.path is not None,
    }


def thumbnail(path: str, size: int, max_pixels: int) -> bytes:
    """A JPEG of at most ``size`` x ``size`` pixels, made anew: nothing else that the file holds gets out."""
    import io

    from holdfast.pixels import open_image

    image = open_image(Path(path), max_pixels=max_pixels)
    image.thumbnail((size, size))
    kept = io.BytesIO()
    image.save(kept, "JPEG", quality=85)
    return kept.getvalue()
