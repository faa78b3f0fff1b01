"""Endpoints for items: look at one, add, delete.

An id is given in the query or in the body, never as a part of the path: ids may hold slashes, which proxies decode.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from holdfast.errors import HoldfastError
from holdfast.gallery import Item
from holdfast.gallery.filters import LONGEST_TEXT
from holdfast.gallery.items import LONGEST_ID
from holdfast.service.access import Access
from holdfast.service.errors import RefusedError
from holdfast.service.request_bodies import IMAGE_TYPES, Limits, parsed, read_body, read_json, safe_id
from holdfast.service.schema import (
    Deleted,
    Ids,
    ItemInfo,
    MetadataText,
    NewItem,
    NewItems,
    Stored,
    body_of,
    bytes_of,
    image_body,
    vector_of,
)
from holdfast.service.work import Work, thumbnail

Id = Annotated[str, Query(min_length=1, max_length=LONGEST_ID)]


def item_routes(work: Work, access: Access, limits: Limits) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["items"])
    shown: Any = {200: {"model": ItemInfo}}
    stored: Any = {200: {"model": Stored}}
    deleted: Any = {200: {"model": Deleted}}
    picture: Any = {200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}}

    def check_batch(count: int) -> None:
        if count > limits.batch:
            raise RefusedError(422, f"{count} in one request; at most {limits.batch} are taken")

    @router.get("/item", responses=shown, response_model=None)
    async def get(request: Request, id: Id) -> dict[str, Any]:
        """What is known of an item."""
        access.demand("read", request.headers.get("authorization"))
        name = safe_id(id)
        found = await work.run(work.item, name)
        path = found.pop("path")
        return {"id": name, **found, "image": path is not None}

    @router.get("/item/thumbnail", responses=picture, response_model=None)
    async def small(
        request: Request, id: Id, size: Annotated[int, Query(ge=16, le=limits.thumbnail)] = 256
    ) -> Response:
        """The item's image as a small JPEG; 404 where the gallery has none, or can no longer read it."""
        access.demand("read", request.headers.get("authorization"))
        path = (await work.run(work.item, safe_id(id)))["path"]
        if path is None:
            raise RefusedError(404, "the gallery has no image of this item")
        try:
            made = await work.run(thumbnail, path, size, limits.pixels, opening=True)
        except (HoldfastError, OSError):
            raise RefusedError(404, "the item's image can no longer be read") from None  # its path stays here
        return Response(made, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=60"})

    @router.put("/item", responses=stored, openapi_extra=image_body(), response_model=None)
    async def put(
        request: Request,
        id: Id,
        label: Annotated[str | None, Query(max_length=LONGEST_TEXT)] = None,
        metadata: Annotated[str | None, Query(description="Flat, as JSON.", examples=['{"shop": "north"}'])] = None,
    ) -> dict[str, Any]:
        """Add or replace one item by its image: the body is the bytes of the file."""
        access.demand("write", request.headers.get("authorization"))
        work.demand_writable()
        name, fields = safe_id(id), {} if metadata is None else parsed(MetadataText, metadata).root
        image = await read_body(request, limits, IMAGE_TYPES)
        while True:
            vector, version = await work.embed(image)
            try:
                await work.add([Item(name, vector=vector, label=label, metadata=fields)], version)
            except HoldfastError:
                if work.gallery.newest().number == version:
                    raise  # otherwise a rollback has begun to take that version out
            else:
                work.forget_stats()
                return {"stored": 1, "version": version}

    @router.post("/items", responses=stored, openapi_extra=body_of(NewItems), response_model=None)
    async def post(request: Request) -> dict[str, Any]:
        """Add or replace items by their vectors or images, all of them or, where one is bad, none."""
        access.demand("write", request.headers.get("authorization"))
        work.demand_writable()
        asked = await read_json(request, limits, NewItems)
        check_batch(len(asked.items))
        names = [_checked(item) for item in asked.items]
        if len(set(names)) < len(names):
            raise RefusedError(422, "items: an id is given twice")
        images = [item for item in asked.items if item.image is not None]
        newest = work.gallery.newest().number
        if images and asked.version not in (None, newest):
            raise RefusedError(422, "version: images are embedded by the newest version; leave it out")
        found = await asyncio.gather(*(work.embed(bytes_of(item.image or "", "image")) for item in images))
        versions = {version for _, version in found} or {newest if asked.version is None else asked.version}
        if len(versions) > 1:
            raise RefusedError(409, "a version was registered meanwhile; send the items again")
        embedded = {item.id: vector for item, (vector, _) in zip(images, found, strict=True)}
        items = [
            Item(
                item.id,
                vector=embedded[item.id] if item.vector is None else vector_of(item.vector),
                label=item.label,
                metadata=item.metadata,
            )
            for item in asked.items
        ]
        version = await work.add(items, versions.pop())
        work.forget_stats()
        return {"stored": len(items), "version": version}

    @router.delete("/item", responses=deleted, response_model=None)
    async def delete(request: Request, id: Id) -> dict[str, Any]:
        """Take one item out; 404 where it is not there."""
        access.demand("write", request.headers.get("authorization"))
        work.demand_writable()
        name = safe_id(id)
        gone = await work.run(work.gallery.delete, [name])
        if not gone:
            raise RefusedError(404, f"no item {name[:80]!r} in the gallery")
        work.forget_stats()
        return {"deleted": gone, "unknown": []}

    @router.post("/items/delete", responses=deleted, openapi_extra=body_of(Ids), response_model=None)
    async def delete_many(request: Request) -> dict[str, Any]:
        """Take items out; those that are not there are named."""
        access.demand("write", request.headers.get("authorization"))
        work.demand_writable()
        asked = await read_json(request, limits, Ids)
        check_batch(len(asked.ids))
        names = [safe_id(one) for one in dict.fromkeys(asked.ids)]
        gone = await work.run(work.gallery.delete, names)
        work.forget_stats()
        return {"deleted": gone, "unknown": [one for one in names if one not in set(gone)]}

    return router


def _checked(given: NewItem) -> str:
    if (given.vector is None) == (given.image is None):
        raise HoldfastError(f"item {given.id[:80]!r}: give an image or a vector")
    return safe_id(given.id)
