"""Endpoints for items: show one, add, delete.

An id is given in the query or in the body, never as a part of the path: ids may contain slashes, which proxies decode.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item
from holdfast.gallery.gallery_items import checked_id, checked_new_id
from holdfast.gallery.item_limits import LONGEST_ID, LONGEST_TEXT
from holdfast.service.access_control import AccessControl
from holdfast.service.body_limits import IMAGE_TYPES, JSON_TYPES, read_body, return_freed_memory
from holdfast.service.gallery_jobs import AddRequest, DeleteRequest, GalleryJobs
from holdfast.service.json_bodies import (
    Ids,
    MetadataText,
    NewItem,
    NewItems,
    decode_base64,
    parse_json,
    parse_vector,
)
from holdfast.service.openapi_schema import Deleted, ItemInfo, OperationState, WriteAnswer, image_body, json_body, keyed
from holdfast.service.operations import REPLAYED_HEADER, Answer, Operation, request_digest
from holdfast.service.refusals import RequestError

Id = Annotated[str, Query(min_length=1, max_length=LONGEST_ID)]


def item_routes(jobs: GalleryJobs, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["items"])
    limits = jobs.limits
    shown: Any = {200: {"model": ItemInfo}}
    stored: Any = {200: {"model": WriteAnswer}}
    deleted: Any = {200: {"model": Deleted}}
    picture: Any = {200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}}

    def require_write(request: Request) -> None:
        access.require("write", request.headers.get("authorization"))
        jobs.require_writable()

    def check_batch(count: int) -> None:
        if count > limits.batch:
            raise RequestError(422, f"{count} in one request; at most {limits.batch} are taken")

    async def write(request: Request, digest: str, work: Callable[[Operation], Awaitable[Answer]]) -> JSONResponse:
        return _answered(*await jobs.operations.run(request, digest, work))

    @router.get("/item", responses=shown, response_model=None)
    async def get(request: Request, id: Id) -> dict[str, Any]:
        """Version, label and metadata of an item."""
        access.require("read", request.headers.get("authorization"))
        name = checked_id(id)
        found = await jobs.in_thread(jobs.get_item, name)
        path = found.pop("path")
        return {"id": name, **found, "image": path is not None}

    @router.get("/item/thumbnail", responses=picture, response_model=None)
    async def small(
        request: Request, id: Id, size: Annotated[int, Query(ge=16, le=limits.thumbnail)] = 256
    ) -> Response:
        """The item's image as a small JPEG; 404 if the gallery has no image of it or cannot read it."""
        access.require("read", request.headers.get("authorization"))
        path = (await jobs.in_thread(jobs.get_item, checked_id(id)))["path"]
        if path is None:
            raise RequestError(404, "the gallery has no image of this item")
        try:
            task = {"task": "thumbnail", "path": path, "side": size, "max_pixels": limits.pixels}
            made = await jobs.in_worker(task, b"", access.client(request))
        except RequestError as error:
            if error.status != 422:
                raise
            # Its message contains the path.
            raise RequestError(404, "the item's image cannot be read any more") from None
        return Response(made, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=60"})

    @router.put("/item", responses=stored, openapi_extra=keyed(image_body()), response_model=None)
    async def put(
        request: Request,
        id: Id,
        label: Annotated[str | None, Query(max_length=LONGEST_TEXT)] = None,
        metadata: Annotated[str | None, Query(description="Flat, as JSON.", examples=['{"shop": "north"}'])] = None,
    ) -> Response:
        """Add or replace one item by its image: the body is the bytes of the file."""
        require_write(request)
        name, fields = _safe_id(id), {} if metadata is None else parse_json(MetadataText, metadata).root
        image = await read_body(request, limits, IMAGE_TYPES)

        async def work(operation: Operation) -> Answer:
            while True:
                vector, version = await jobs.embed(image, access.client(request))
                item = Item(name, vector=vector, label=label, metadata=fields)
                try:
                    return await jobs.write(AddRequest(operation, [item], version))
                except HoldfastError:
                    if jobs.gallery.newest().number == version:
                        raise
                    # A rollback of the version began after it had embedded the image: the newest version embeds it.

        return await write(request, await request_digest(request, image), work)

    @router.post("/items", responses=stored, openapi_extra=keyed(json_body(NewItems)), response_model=None)
    async def post(request: Request) -> Response:
        """Add or replace items by their vectors or images. If one is refused, none is stored."""
        require_write(request)
        text = await read_body(request, limits, JSON_TYPES)
        body = await jobs.parse(NewItems, text, access.client(request))
        digest = await request_digest(request, text)
        del text
        if any(item.image is not None for item in body.items):  # then decoding them takes the most memory
            await jobs.in_thread(return_freed_memory)
        check_batch(len(body.items))
        jobs.check_new_fields({name for item in body.items for name in item.metadata})
        names = [_checked_id(item) for item in body.items]
        if len(set(names)) < len(names):
            raise RequestError(422, "items: an id is given twice")
        images = [item for item in body.items if item.image is not None]

        async def work(operation: Operation) -> Answer:
            newest = jobs.gallery.newest().number
            if images and body.version not in (None, newest):
                raise RequestError(422, "version: images are embedded by the newest version; leave it out")
            files = (decode_base64(item.image or "", "image") for item in images)
            found = await jobs.embed_all(files, access.client(request))
            versions = {version for _, version in found} or {newest if body.version is None else body.version}
            with_vectors = body.version is not None or len(images) < len(body.items)
            if len(versions) > 1 or (with_vectors and images and versions != {newest}):
                raise RequestError(409, "a version was registered meanwhile; send the items again")
            embedded = {item.id: vector for item, (vector, _) in zip(images, found, strict=True)}
            items = [
                Item(
                    item.id,
                    vector=embedded[item.id] if item.vector is None else parse_vector(item.vector),
                    label=item.label,
                    metadata=item.metadata,
                )
                for item in body.items
            ]
            return await jobs.write(AddRequest(operation, items, versions.pop()))

        return await write(request, digest, work)

    @router.delete("/item", responses=deleted, openapi_extra=keyed(), response_model=None)
    async def delete(request: Request, id: Id) -> Response:
        """Delete one item; 404 if there is no such item."""
        require_write(request)
        name = checked_id(id)

        answer, replayed = await jobs.operations.run(
            request, await request_digest(request, b""), lambda operation: jobs.write(DeleteRequest(operation, [name]))
        )
        if not answer["deleted"]:
            raise RequestError(404, f"no item {name[:80]!r} in the gallery")
        return _answered(answer, replayed)

    @router.post("/items/delete", responses=deleted, openapi_extra=keyed(json_body(Ids)), response_model=None)
    async def delete_many(request: Request) -> Response:
        """Delete items; the answer lists ids that do not exist as unknown."""
        require_write(request)
        text = await read_body(request, limits, JSON_TYPES)
        body = await jobs.parse(Ids, text, access.client(request))
        check_batch(len(body.ids))
        names = [checked_id(one) for one in dict.fromkeys(body.ids)]
        digest = await request_digest(request, text)
        return await write(request, digest, lambda operation: jobs.write(DeleteRequest(operation, names)))

    @router.get("/operation", responses={200: {"model": OperationState}}, response_model=None)
    async def operation(request: Request, id: Annotated[str, Query(min_length=1, max_length=128)]) -> Answer:
        """What became of a write, by its idempotency key or by the Operation-Id of a 504."""
        require_write(request)
        return await jobs.operations.state(id, request)

    return router


def _answered(answer: Answer, replayed: bool) -> JSONResponse:
    return JSONResponse(answer, headers={REPLAYED_HEADER: "true"} if replayed else None)


def _checked_id(item: NewItem) -> str:
    if (item.vector is None) == (item.image is None):
        raise HoldfastError(f"item {item.id[:80]!r}: give an image or a vector")
    return _safe_id(item.id)


def _safe_id(given: str) -> str:
    """An id that the gallery takes and that, read as a relative path, stays below its folder.

    The service uses no id as a file name. The check protects programs that do, such as an export.
    """
    name = checked_new_id(given)
    for form in (name, unquote(name)):
        if form.startswith(("/", "~")) or "\\" in form or "\0" in form or {".", ".."} & set(form.split("/")):
            raise HoldfastError(f"id {name[:80]!r}: no leading / or ~, no backslash, no part that is . or ..")
    return name
