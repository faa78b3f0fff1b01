"""Endpoints for items: show one, add, delete.

An id is given in the query or in the body, never as a part of the path: ids may contain slashes, which proxies decode.
"""

import asyncio
import io
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from holdfast.errors import HoldfastError
from holdfast.gallery import Item, writable
from holdfast.gallery.filters import LONGEST_TEXT
from holdfast.gallery.items import LONGEST_ID
from holdfast.pixels import open_image
from holdfast.service.access_control import AccessControl
from holdfast.service.errors import RequestError
from holdfast.service.gallery_jobs import GalleryJobs
from holdfast.service.request_bodies import IMAGE_TYPES, parse_json, read_body, read_json, safe_id
from holdfast.service.schema import (
    Deleted,
    Ids,
    ItemInfo,
    MetadataText,
    NewItem,
    NewItems,
    Stored,
    decode_base64,
    image_body,
    json_body,
    parse_vector,
)

Id = Annotated[str, Query(min_length=1, max_length=LONGEST_ID)]


def item_routes(jobs: GalleryJobs, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["items"])
    limits = jobs.limits
    shown: Any = {200: {"model": ItemInfo}}
    stored: Any = {200: {"model": Stored}}
    deleted: Any = {200: {"model": Deleted}}
    picture: Any = {200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}}

    def require_write(request: Request) -> None:
        access.require("write", request.headers.get("authorization"))
        jobs.require_writable()

    def check_batch(count: int) -> None:
        if count > limits.batch:
            raise RequestError(422, f"{count} in one request; at most {limits.batch} are taken")

    async def delete_items(names: list[str]) -> list[str]:
        found = await jobs.in_thread(writable(jobs.gallery).delete, names)
        jobs.clear_stats()
        return found

    @router.get("/item", responses=shown, response_model=None)
    async def get(request: Request, id: Id) -> dict[str, Any]:
        """Version, label and metadata of an item."""
        access.require("read", request.headers.get("authorization"))
        name = safe_id(id)
        found = await jobs.in_thread(jobs.get_item, name)
        path = found.pop("path")
        return {"id": name, **found, "image": path is not None}

    @router.get("/item/thumbnail", responses=picture, response_model=None)
    async def small(
        request: Request, id: Id, size: Annotated[int, Query(ge=16, le=limits.thumbnail)] = 256
    ) -> Response:
        """The item's image as a small JPEG; 404 if the gallery has no image of it or cannot read it."""
        access.require("read", request.headers.get("authorization"))
        path = (await jobs.in_thread(jobs.get_item, safe_id(id)))["path"]
        if path is None:
            raise RequestError(404, "the gallery has no image of this item")
        try:
            made = await jobs.in_thread(_thumbnail, path, size, limits.pixels, decodes=True)
        except (HoldfastError, OSError):  # their messages contain the path
            raise RequestError(404, "the item's image cannot be read any more") from None
        return Response(made, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=60"})

    @router.put("/item", responses=stored, openapi_extra=image_body(), response_model=None)
    async def put(
        request: Request,
        id: Id,
        label: Annotated[str | None, Query(max_length=LONGEST_TEXT)] = None,
        metadata: Annotated[str | None, Query(description="Flat, as JSON.", examples=['{"shop": "north"}'])] = None,
    ) -> dict[str, Any]:
        """Add or replace one item by its image: the body is the bytes of the file."""
        require_write(request)
        name, fields = safe_id(id), {} if metadata is None else parse_json(MetadataText, metadata).root
        image = await read_body(request, limits, IMAGE_TYPES)
        while True:
            vector, version = await jobs.embed(image)
            try:
                await jobs.add([Item(name, vector=vector, label=label, metadata=fields)], version)
            except HoldfastError:
                if jobs.gallery.newest().number == version:
                    raise
                # A rollback of the version began after it had embedded the image: embed it again by the newest version.
            else:
                jobs.clear_stats()
                return {"stored": 1, "version": version}

    @router.post("/items", responses=stored, openapi_extra=json_body(NewItems), response_model=None)
    async def post(request: Request) -> dict[str, Any]:
        """Add or replace items by their vectors or images. If one is refused, none is stored."""
        require_write(request)
        body = await read_json(request, limits, NewItems)
        check_batch(len(body.items))
        names = [_checked_id(item) for item in body.items]
        if len(set(names)) < len(names):
            raise RequestError(422, "items: an id is given twice")
        images = [item for item in body.items if item.image is not None]
        newest = jobs.gallery.newest().number
        if images and body.version not in (None, newest):
            raise RequestError(422, "version: images are embedded by the newest version; leave it out")
        found = await asyncio.gather(*(jobs.embed(decode_base64(item.image or "", "image")) for item in images))
        versions = {version for _, version in found} or {newest if body.version is None else body.version}
        if len(versions) > 1:
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
        version = await jobs.add(items, versions.pop())
        jobs.clear_stats()
        return {"stored": len(items), "version": version}

    @router.delete("/item", responses=deleted, response_model=None)
    async def delete(request: Request, id: Id) -> dict[str, Any]:
        """Delete one item; 404 if there is no such item."""
        require_write(request)
        name = safe_id(id)
        found = await delete_items([name])
        if not found:
            raise RequestError(404, f"no item {name[:80]!r} in the gallery")
        return {"deleted": found, "unknown": []}

    @router.post("/items/delete", responses=deleted, openapi_extra=json_body(Ids), response_model=None)
    async def delete_many(request: Request) -> dict[str, Any]:
        """Delete items; the answer lists ids that do not exist as unknown."""
        require_write(request)
        body = await read_json(request, limits, Ids)
        check_batch(len(body.ids))
        names = [safe_id(one) for one in dict.fromkeys(body.ids)]
        found = await delete_items(names)
        return {"deleted": found, "unknown": [one for one in names if one not in set(found)]}

    return router


def _checked_id(item: NewItem) -> str:
    if (item.vector is None) == (item.image is None):
        raise HoldfastError(f"item {item.id[:80]!r}: give an image or a vector")
    return safe_id(item.id)


def _thumbnail(path: str, size: int, max_pixels: int) -> bytes:
    """A JPEG of at most ``size`` x ``size`` pixels. It is encoded anew: metadata of the file is not copied."""
    image = open_image(Path(path), max_pixels=max_pixels)
    image.thumbnail((size, size))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return file.getvalue()
