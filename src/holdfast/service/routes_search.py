"""Endpoints that search: by image, by vector, by the id of an item."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from holdfast.service.access_control import AccessControl
from holdfast.service.gallery_jobs import GalleryJobs, SearchOptions
from holdfast.service.request_bodies import IMAGE_TYPES, JSON_TYPES, read_body, safe_id
from holdfast.service.request_errors import RequestError
from holdfast.service.request_models import (
    HIGHEST_VERSION,
    MOST_VERSIONS,
    FilterText,
    IdSearch,
    VectorSearch,
    parse_json,
    parse_vector,
)
from holdfast.service.schema import Hits, image_body, json_body


def search_routes(jobs: GalleryJobs, access: AccessControl) -> APIRouter:
    router = APIRouter(prefix="/v1/search", tags=["search"])
    responses: Any = {200: {"model": Hits}}
    limits = jobs.limits

    def options_of(body: VectorSearch | IdSearch) -> SearchOptions:
        if body.k > limits.k:
            raise RequestError(422, f"k: {body.k} hits; at most {limits.k} are given")
        return SearchOptions(body.k, body.filter, body.indexed_by, body.exact)

    @router.post("/vector", responses=responses, openapi_extra=json_body(VectorSearch), response_model=None)
    async def by_vector(request: Request) -> Response:
        """The items nearest to a vector of the newest version, or of `version`."""
        access.require("read", request.headers.get("authorization"))
        text = await read_body(request, limits, JSON_TYPES)
        body = await jobs.parse(VectorSearch, text, access.client(request))
        options = options_of(body)

        def search() -> bytes:
            return _json_bytes(jobs.search_vector(parse_vector(body.vector), body.version, options))

        return Response(await jobs.in_thread(search), media_type="application/json")

    @router.post("/id", responses=responses, openapi_extra=json_body(IdSearch), response_model=None)
    async def by_id(request: Request) -> Response:
        """The items nearest to a stored item, without that item."""
        access.require("read", request.headers.get("authorization"))
        text = await read_body(request, limits, JSON_TYPES)
        body = await jobs.parse(IdSearch, text, access.client(request))
        options = options_of(body)

        def search() -> bytes:
            return _json_bytes(jobs.search_id(safe_id(body.id), options))

        return Response(await jobs.in_thread(search), media_type="application/json")

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
    ) -> Response:
        """The items nearest to an image: the body is the bytes of the file, never a path or an address."""
        access.require("read", request.headers.get("authorization"))
        conditions = None if filter is None else parse_json(FilterText, filter).root
        image = await read_body(request, limits, IMAGE_TYPES)
        found = await jobs.search_image(image, SearchOptions(k, conditions, indexed_by, exact), access.client(request))
        return Response(_json_bytes(found), media_type="application/json")

    return router


def _json_bytes(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
