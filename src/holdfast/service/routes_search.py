"""Endpoints that search: by image, by vector, by an item."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from holdfast.service.access import Access
from holdfast.service.errors import RefusedError
from holdfast.service.request_bodies import IMAGE_TYPES, Limits, parsed, read_body, read_json, safe_id
from holdfast.service.schema import (
    HIGHEST_VERSION,
    MOST_VERSIONS,
    FilterText,
    Hits,
    IdSearch,
    VectorSearch,
    body_of,
    image_body,
    vector_of,
)
from holdfast.service.work import Asked, Work


def search_routes(work: Work, access: Access, limits: Limits) -> APIRouter:
    router = APIRouter(prefix="/v1/search", tags=["search"])
    answers: Any = {200: {"model": Hits}}

    def check_k(k: int) -> None:
        if k > limits.k:
            raise RefusedError(422, f"k: {k} hits; at most {limits.k} are given")

    @router.post("/vector", responses=answers, openapi_extra=body_of(VectorSearch), response_model=None)
    async def by_vector(request: Request) -> Response:
        """The items nearest to a vector of the newest version, or of `version`."""
        access.demand("read", request.headers.get("authorization"))
        asked = await read_json(request, limits, VectorSearch)
        check_k(asked.k)

        def answer() -> bytes:
            vector = vector_of(asked.vector)
            return _json(work.search_vector(vector, asked.version, _asked(asked)))

        return Response(await work.run(answer), media_type="application/json")

    @router.post("/id", responses=answers, openapi_extra=body_of(IdSearch), response_model=None)
    async def by_id(request: Request) -> Response:
        """The items nearest to one that is there, which is itself left out."""
        access.demand("read", request.headers.get("authorization"))
        asked = await read_json(request, limits, IdSearch)
        check_k(asked.k)

        def answer() -> bytes:
            return _json(work.search_id(safe_id(asked.id), _asked(asked)))

        return Response(await work.run(answer), media_type="application/json")

    @router.post("/image", responses=answers, openapi_extra=image_body(), response_model=None)
    async def by_image(
        request: Request,
        k: Annotated[int, Query(ge=1, le=limits.k)] = 10,
        filter: Annotated[str | None, Query(description="A filter as JSON.", examples=['{"shop": "north"}'])] = None,
        indexed_by: Annotated[
            list[Annotated[int, Field(ge=0, le=HIGHEST_VERSION)]] | None,
            Query(max_length=MOST_VERSIONS, description="Only items that this version embedded; may be given again."),
        ] = None,
        exact: bool = False,
    ) -> Response:
        """The items nearest to an image: the body is the bytes of the file, never a path or an address."""
        access.demand("read", request.headers.get("authorization"))
        where = None if filter is None else parsed(FilterText, filter).root
        image = await read_body(request, limits, IMAGE_TYPES)
        found = await work.search_image(image, Asked(k, where, indexed_by, exact))
        return Response(_json(found), media_type="application/json")

    return router


def _asked(body: VectorSearch | IdSearch) -> Asked:
    return Asked(body.k, body.filter, body.indexed_by, body.exact)


def _json(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
