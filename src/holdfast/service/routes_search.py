"""Endpoints that search: by image, by vector, by the id of an item."""

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from holdfast.gallery.gallery_base import SearchOptions
from holdfast.gallery.gallery_items import checked_id
from holdfast.service.access_control import AccessControl
from holdfast.service.body_limits import IMAGE_TYPES, JSON_TYPES, read_body
from holdfast.service.gallery_jobs import GalleryJobs
from holdfast.service.json_bodies import (
    HIGHEST_VERSION,
    MOST_VERSIONS,
    FilterText,
    IdSearch,
    VectorSearch,
    parse_json,
    parse_vector,
)
from holdfast.service.openapi_schema import SearchAnswer, image_body, json_body
from holdfast.service.refusals import RequestError

Endpoint = Callable[[Request], Awaitable[Response]]
_PREFIX = "/v1/search"


def direct_searches(jobs: GalleryJobs, access: AccessControl) -> dict[str, Endpoint]:
    """The searches by vector and by id, by path. ``RequestMiddleware`` calls them without the application's router.

    The router and what belongs to it take longer than a search of a small gallery, and these two need nothing of it.
    """
    limits = jobs.limits

    def options_of(body: VectorSearch | IdSearch) -> SearchOptions:
        _check_page(body.k, body.offset, limits.k)
        return SearchOptions(body.k, body.filter, body.indexed_by, body.exact, body.offset)

    async def by_vector(request: Request) -> Response:
        """The items nearest to a vector of the newest version, or of `version`."""
        access.require("read", request.headers.get("authorization"))
        text = await read_body(request, limits, JSON_TYPES)
        body = await jobs.parse(VectorSearch, text, access.client(request))
        options = options_of(body)

        def search() -> bytes:
            return _json_bytes(jobs.search_vector(parse_vector(body.vector), body.version, options))

        return Response(await jobs.in_thread(search), media_type="application/json")

    async def by_id(request: Request) -> Response:
        """The items nearest to a stored item, without that item."""
        access.require("read", request.headers.get("authorization"))
        text = await read_body(request, limits, JSON_TYPES)
        body = await jobs.parse(IdSearch, text, access.client(request))
        options = options_of(body)

        def search() -> bytes:
            return _json_bytes(jobs.search_id(checked_id(body.id), options))

        return Response(await jobs.in_thread(search), media_type="application/json")

    return {f"{_PREFIX}/vector": by_vector, f"{_PREFIX}/id": by_id}


def search_routes(jobs: GalleryJobs, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix=_PREFIX, tags=["search"])
    responses: Any = {200: {"model": SearchAnswer}}
    limits = jobs.limits
    # Their requests are answered before they reach the router, which describes them and refuses other methods.
    by_vector, by_id = direct_searches(jobs, access).values()
    for path, endpoint, body in (("/vector", by_vector, VectorSearch), ("/id", by_id, IdSearch)):
        extra = json_body(body)
        router.post(path, responses=responses, openapi_extra=extra, response_model=None)(endpoint)

    @router.post("/image", responses=responses, openapi_extra=image_body(), response_model=None)
    async def by_image(
        request: Request,
        k: Annotated[int, Query(ge=1, le=limits.k)] = 10,
        filter: Annotated[str | None, Query(description="A filter as JSON.", examples=['{"shop": "north"}'])] = None,
        indexed_by: Annotated[
            list[Annotated[int, Field(ge=0, le=HIGHEST_VERSION)]] | None,
            Query(max_length=MOST_VERSIONS, description="Only items that this version embedded; may be repeated."),
        ] = None,
        exact: bool = False,
        offset: Annotated[int, Query(ge=0, le=limits.k)] = 0,
    ) -> Response:
        """The items nearest to an image: the body is the bytes of the file, never a path or an address."""
        access.require("read", request.headers.get("authorization"))
        _check_page(k, offset, limits.k)
        conditions = None if filter is None else parse_json(FilterText, filter).root
        image = await read_body(request, limits, IMAGE_TYPES)
        options = SearchOptions(k, conditions, indexed_by, exact, offset)
        found = await jobs.search_image(image, options, access.client(request))
        return Response(_json_bytes(found), media_type="application/json")

    return router


def _check_page(k: int, offset: int, most: int) -> None:
    if k > most:
        raise RequestError(422, f"k: {k} hits; at most {most} are given")
    if k + offset > most:
        raise RequestError(422, f"offset: {k} hits after {offset}; k and offset together are at most {most}")


def _json_bytes(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
