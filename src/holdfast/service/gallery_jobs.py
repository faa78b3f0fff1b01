"""Calls of the endpoints to the gallery: in threads, with a timeout, and batched for images and additions."""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from holdfast.core.errors import HoldfastError, UnavailableError
from holdfast.embedders.model_inputs import ImagesInput
from holdfast.gallery import Gallery, Hit, Item, OpenGallery
from holdfast.gallery.catalogue import Receipt
from holdfast.gallery.gallery_base import SearchOptions
from holdfast.gallery.gallery_versions import IMAGES, Version
from holdfast.gallery.item_limits import MOST_FIELDS
from holdfast.gallery.version_models import batch_sizes, unit_row
from holdfast.service.batcher import Batcher, SetResult
from holdfast.service.body_limits import Limits
from holdfast.service.json_bodies import Model, bounds_of, check_bounds, parse_json, read_checked
from holdfast.service.operations import Answer, Operation, Operations, UnfinishedWriteError
from holdfast.service.refusals import LOG, RequestError
from holdfast.service.worker_pool import WorkerPool

if TYPE_CHECKING:
    from holdfast.embedders.image_encoder import ImageEncoder

Result = TypeVar("Result")

_STATS_AGE_S = 1.0
_STATS_AGE_ATTACHED_S = 30.0  # counting the rows of an attached table reads all of it
_PARSED_HERE = 2**16  # bytes of a JSON body that takes a millisecond or two to parse


class WriteRequest:
    """A write of one request: either all of it is done or nothing.

    operation: whose write it is.

    The writer claims the request when it begins, and the request's handler gives it up when it has waited too long.
    Whichever comes first decides, so that a write that was given up is never done.
    """

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._decided = threading.Lock()  # never released: the first to acquire it decides

    def claim(self) -> bool:
        """Whether the write may begin."""
        return self._decided.acquire(blocking=False)

    def give_up(self) -> bool:
        """Whether the write has not begun; it will not be done then."""
        return self._decided.acquire(blocking=False)

    def receipt(self, answer: Answer) -> Receipt:
        return Receipt(self.operation.id, self.operation.request, answer)


class AddRequest(WriteRequest):
    """Items to store, embedded by ``version``."""

    def __init__(self, operation: Operation, items: list[Item], version: int) -> None:
        super().__init__(operation)
        self.items, self.version = items, version

    @property
    def answer(self) -> Answer:
        return {"stored": len(self.items), "version": self.version}


class DeleteRequest(WriteRequest):
    """Ids of items to delete."""

    def __init__(self, operation: Operation, ids: list[str]) -> None:
        super().__init__(operation)
        self.ids = ids

    def answer(self, deleted: list[str]) -> Answer:
        gone = set(deleted)
        return {"deleted": deleted, "unknown": [one for one in self.ids if one not in gone]}


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
        self.exposure = ExposureCounter()
        self.workers = WorkerPool()
        self.encoder: Batcher[DecodedImage, np.ndarray] = Batcher(
            self._embed_batch,
            max_batch=limits.encoder_batch or self._embedder.batch_size,
            wait_s=limits.encoder_wait_ms / 1000,
            name="encode",
        )
        self.writer: Batcher[AddRequest | DeleteRequest, Answer] = Batcher(
            self._write_batch, max_batch=limits.batch, wait_s=0, name="write"
        )
        self.operations = Operations(gallery, limits.seconds)
        self._stats: tuple[float, dict[str, Any]] | None = None
        self._stats_read: asyncio.Future[dict[str, Any]] | None = None

    @property
    def read_only(self) -> bool:
        """Whether the gallery is attached to another store."""
        return self.gallery.read_only is not None

    def require_writable(self) -> None:
        if self.read_only:
            raise RequestError(403, "the gallery is attached to a store and only reads it; write to the store itself")

    def check_new_fields(self, names: set[str]) -> None:
        """Refuse a write with many fields that no item has yet: the gallery indexes each of them."""
        assert isinstance(self.gallery, Gallery)  # see ``require_writable``
        new = len(names - self.gallery.fields)
        if new > MOST_FIELDS:
            raise RequestError(422, f"{new} new metadata fields in one request; at most {MOST_FIELDS} are taken")

    async def in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """The result of a call that changes nothing, in a thread; 503 if it takes too long."""
        return await self.with_timeout(asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments))

    async def in_worker(self, task: dict[str, Any], body: bytes, client: str) -> bytes:
        """The result of a task of ``worker_process``, within the limits of one task; 503 if it has to wait too long."""
        limited = {**task, "memory": self.limits.task_memory, "seconds": self.limits.task_seconds}
        return await self.with_timeout(self.workers.run(limited, body, client=client))

    async def parse(self, model: type[Model], body: bytes, client: str) -> Model:
        """A JSON body as a model. A large one is parsed by a worker process, which takes the time and the memory."""
        if len(body) <= _PARSED_HERE:
            check_bounds(body, bounds_of(model, self.limits.batch))
            return parse_json(model, body)
        task = {"task": "body", "model": model.__name__, "batch": self.limits.batch}
        return read_checked(model, await self.in_worker(task, body, client))

    async def with_timeout(self, call: "asyncio.Future[Result] | Coroutine[Any, Any, Result]") -> Result:
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await call
        except TimeoutError:
            raise self._too_busy() from None

    def _too_busy(self) -> RequestError:
        reason = f"not done within {self.limits.seconds:g} s: the service is busy; try again"
        return RequestError(503, reason, {"Retry-After": "5"})

    async def embed(self, image: bytes, client: str) -> tuple[np.ndarray, int]:
        """The vector of an image file's bytes by the newest version, and the number of that version."""
        return await self._encode(await self._decode(image, client))

    async def embed_all(self, images: Iterable[bytes], client: str) -> list[tuple[np.ndarray, int]]:
        """As ``embed``, of several. They are decoded one after another, so that a request takes the memory of one."""
        encoded: list[asyncio.Future[tuple[np.ndarray, int]]] = []
        try:
            for image in images:
                encoded.append(asyncio.ensure_future(self._encode(await self._decode(image, client))))
            return await asyncio.gather(*encoded)
        except BaseException:
            for one in encoded:
                one.cancel()
            await asyncio.gather(*encoded, return_exceptions=True)
            raise

    async def _decode(self, image: bytes, client: str) -> "DecodedImage":
        version, encoder, task = await self.in_thread(self._embedder.decoding_task, self.limits.pixels)
        try:
            pixels = await self.in_worker(task, image, client)
        except RequestError as error:
            if error.status != 422:
                raise
            reason = error.reason.removeprefix("the image: ").replace(
                "HEIC needs the extra heif", "HEIC needs the extra heif where the service runs"
            )
            raise RequestError(422, f"this image cannot be used: {reason}") from None
        return DecodedImage(version, encoder, pixels)

    async def _encode(self, decoded: "DecodedImage") -> tuple[np.ndarray, int]:
        return await self.with_timeout(self.encoder.submit(decoded)), decoded.version.number

    async def search_image(self, image: bytes, options: SearchOptions, client: str) -> dict[str, Any]:
        while True:
            vector, version = await self.embed(image, client)
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
        return self._answer(source, hits, options)

    def search_id(self, name: str, options: SearchOptions) -> dict[str, Any]:
        source = self.get_item(name)["version"]
        hits = self.gallery.search(id=name, **vars(options))
        return self._answer(source, hits, options)

    def _answer(self, source: int, hits: Sequence[Hit], options: SearchOptions) -> dict[str, Any]:
        if not (options.filter or options.indexed_by or options.offset):  # the best hits among all items
            self.exposure.count(hits)
        return {"version": source, "hits": [_hit_json(hit) for hit in hits]}

    def get_item(self, name: str) -> dict[str, Any]:
        found = self.gallery.get([name]).get(name)
        if found is None:
            raise RequestError(404, f"no item {name[:80]!r} in the gallery")
        return found

    async def write(self, request: AddRequest | DeleteRequest) -> Answer:
        """The answer of a write, once it is on disk. 503: it was not done and will not be.

        ``UnfinishedWriteError`` if it has begun but takes longer than twice the limit.
        """
        result = asyncio.ensure_future(self.writer.submit(request))
        await asyncio.wait([result], timeout=self.limits.seconds)
        if not result.done():
            if request.give_up():
                result.cancel()
                raise self._too_busy()
            await asyncio.wait([result], timeout=self.limits.seconds)
        if not result.done():
            raise UnfinishedWriteError(result)
        self.clear_stats()
        return result.result()

    def has_version(self, number: int) -> bool:
        return any(version.number == number for version in self.gallery.versions())

    async def stats(self) -> dict[str, Any]:
        """The gallery's ``stats``, cached for 1 s; for 30 s if the gallery is attached."""
        max_age = _STATS_AGE_ATTACHED_S if self.read_only else _STATS_AGE_S
        if self._stats is not None and time.monotonic() - self._stats[0] <= max_age:
            return self._stats[1]
        if self._stats_read is None:  # requests that arrive meanwhile wait for the same reading
            self._stats_read = asyncio.ensure_future(self._read_stats())
        return await asyncio.shield(self._stats_read)

    async def _read_stats(self) -> dict[str, Any]:
        reading = asyncio.current_task()
        try:
            found = await self.in_thread(self.gallery.stats)
            if self._stats_read is reading:  # nothing was written meanwhile
                self._stats = time.monotonic(), found
            return found
        finally:
            if self._stats_read is reading:
                self._stats_read = None

    def clear_stats(self) -> None:
        """Read the stats anew at the next call of ``stats``."""
        self._stats = self._stats_read = None

    async def close(self) -> None:
        """Wait for running jobs and end the threads."""
        await self.encoder.close()
        await self.writer.close()
        await self.workers.close()
        await asyncio.to_thread(self._threads.shutdown)

    def _embed_batch(self, images: "list[DecodedImage]", set_result: SetResult[np.ndarray]) -> None:
        for index, vector in enumerate(self._embedder.embed(images)):
            set_result(index, vector)

    def _write_batch(self, requests: list[AddRequest | DeleteRequest], set_result: SetResult[Answer]) -> None:
        """Do the writes in order of arrival; additions to one version that follow each other are stored together.

        At most ``Limits.batch`` items at a time: searches of an embedded gallery wait while they are stored.
        """
        gallery = self.gallery
        assert isinstance(gallery, Gallery)  # see ``require_writable``
        with gallery.writing():  # waits here, where requests can still be given up
            together: list[tuple[int, AddRequest]] = []
            for index, request in enumerate(requests):
                if together and not self._can_join(request, [one for _, one in together]):
                    self._store(gallery, together, set_result)
                    together = []
                if isinstance(request, AddRequest):
                    together.append((index, request))
                elif request.claim():
                    set_result(index, _deleted(gallery, request))
            if together:
                self._store(gallery, together, set_result)

    def _can_join(self, request: AddRequest | DeleteRequest, others: Sequence[AddRequest]) -> bool:
        """Whether a request can be stored together with these, all of one version."""
        if not isinstance(request, AddRequest) or request.version != others[0].version:
            return False
        return sum(len(one.items) for one in (request, *others)) <= self.limits.batch

    def _store(self, gallery: Gallery, requests: list[tuple[int, AddRequest]], set_result: SetResult[Answer]) -> None:
        """Store these requests, all of one version, together; one by one if one of them is refused."""
        claimed = [(index, request) for index, request in requests if request.claim()]
        if claimed:
            self._store_claimed(gallery, claimed, set_result)

    def _store_claimed(
        self, gallery: Gallery, requests: list[tuple[int, AddRequest]], set_result: SetResult[Answer]
    ) -> None:
        items = [item for _, request in requests for item in request.items]
        stored = False

        def on_stored(count: int) -> None:  # the items are on disk; ``add`` may still build an index before it returns
            nonlocal stored
            stored = True
            for index, request in requests:
                set_result(index, request.answer)

        receipts = [request.receipt(request.answer) for _, request in requests if request.operation.keyed]
        version = requests[0][1].version
        try:
            gallery.add(items, version=version, batch_size=len(items), progress=on_stored, receipts=receipts)
        except HoldfastError as error:
            if stored:
                LOG.error("after the items were stored: %s", error)
            elif len(requests) == 1 or isinstance(error, UnavailableError):
                for index, _ in requests:
                    set_result(index, error)
            else:
                for one in requests:
                    self._store_claimed(gallery, [one], set_result)


def _deleted(gallery: Gallery, request: DeleteRequest) -> Answer | HoldfastError:
    """Delete the items of a request; its answer, or why nothing was deleted."""

    def receipt(deleted: list[str]) -> Receipt:
        return request.receipt(request.answer(deleted))

    try:
        return request.answer(gallery.delete(request.ids, receipt=receipt if request.operation.keyed else None))
    except HoldfastError as error:
        return error


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
    pixels: uint8, height x width x channels of the version's input.
    """

    version: Version
    encoder: "ImageEncoder"
    pixels: bytes


class ImageEmbedder:
    """Embeds images in two steps: a worker process decodes each, then one forward pass embeds many."""

    def __init__(self, gallery: OpenGallery) -> None:
        self._models = gallery.models

    @property
    def batch_size(self) -> int:
        """The number of images for one call of ``embed`` that suits the device."""
        newest = self._models.newest()
        return batch_sizes(self._models.encoder(newest) if self.takes_images() else None).queries

    def takes_images(self) -> bool:
        """Whether the newest version has a model that embeds images, and can run it."""
        newest = self._models.newest()
        return newest.embeds == IMAGES and newest.embeds_here

    def decoding_task(self, max_pixels: int) -> "tuple[Version, ImageEncoder, dict[str, Any]]":
        """The newest version, its model, and the task for ``worker_process`` that prepares an image for it."""
        version = self._models.newest()
        if version.embeds != IMAGES:
            raise HoldfastError(f"version {version.number} takes no images; search it by vector")
        encoder = self._models.encoder(version)
        wanted = encoder.input
        assert isinstance(wanted, ImagesInput)
        task = {
            "task": "image",
            "colour": wanted.colour,
            "height_width": wanted.height_width,
            "resize": wanted.resize,
            "interpolation": wanted.interpolation,
            "max_pixels": min(max_pixels, wanted.max_pixels),
        }
        return version, encoder, task

    def embed(self, images: Sequence[DecodedImage]) -> list[np.ndarray | HoldfastError]:
        """The vector of each image as its version stores it (attached: the full feature), 1-D, or an error."""
        found: list[np.ndarray | HoldfastError] = [HoldfastError("not embedded")] * len(images)
        for number in {image.version.number for image in images}:  # more than one only during a registration
            indices = [index for index, image in enumerate(images) if image.version.number == number]
            first = images[indices[0]]
            pixels = _stacked([images[index].pixels for index in indices], first.encoder)
            rows = self._models.image_vectors(pixels, first.version, first.encoder)
            for index, row in zip(indices, rows, strict=True):
                try:
                    found[index] = unit_row(row, "image", number)
                except HoldfastError as error:
                    found[index] = error
        return found


def _stacked(images: Sequence[bytes], encoder: "ImageEncoder") -> np.ndarray:
    """Prepared pixels as the model's input, uint8 N x H x W x C."""
    return np.stack([np.frombuffer(pixels, np.uint8).reshape(encoder.input.array_shape) for pixels in images])


FIRST_PLACES = 10


class ExposureCounter:
    """Counts the first ``FIRST_PLACES`` places of answers by the version that embedded the item. Any thread may count.

    Beside each version's share of the items the counts show whether a version's items come first less often than there
    are such items, which nobody sees from single answers.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: Counter[int] = Counter()

    def count(self, hits: Sequence[Hit]) -> None:
        """Count the hits of a search of all items, best first."""
        versions = [hit.version for hit in hits[:FIRST_PLACES]]
        with self._lock:
            self._places.update(versions)

    def places(self) -> dict[int, int]:
        """Places so far, by version."""
        with self._lock:
            return dict(self._places)
