"""The schemas of answers, and the parts of the OpenAPI description that FastAPI does not generate.

The endpoints read request bodies themselves, so FastAPI does not know the schemas of the bodies.
"""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field

from holdfast.service.body_limits import IMAGE_TYPES


class SearchHit(BaseModel):
    id: str
    score: float = Field(description="Hits are ranked by it; comparable between versions.")
    cosine: float = Field(description="Cosine of query and item in the space of the item's version.")
    version: int = Field(description="The version that embedded the item.")
    label: str | None
    metadata: dict[str, Any]
    image: bool = Field(description="Whether the gallery has the path of its image, for a thumbnail.")


class SearchAnswer(BaseModel):
    version: int = Field(description="The version that embedded the query.")
    hits: list[SearchHit]


class ItemInfo(BaseModel):
    id: str
    version: int
    label: str | None
    metadata: dict[str, Any]
    image: bool


class WriteAnswer(BaseModel):
    stored: int
    version: int


class Deleted(BaseModel):
    deleted: list[str]
    unknown: list[str]


class OperationState(BaseModel):
    id: str
    state: str = Field(description="running, done or not done.")
    answer: dict[str, Any] | None = Field(None, description="The answer of the write, if it is done.")
    reason: str | None = Field(None, description="Why it was not done.")


class Reason(BaseModel):
    status: int
    reason: str


class Error(BaseModel):
    error: Reason


_REFERENCE = "#/components/schemas/{model}"
_ERROR_STATUSES = (400, 401, 403, 404, 408, 409, 413, 414, 415, 421, 422, 503, 504)
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {status: {"model": Error} for status in _ERROR_STATUSES}
NO_TOKEN_NEEDED: dict[str, Any] = {"security": []}
_MODELS: dict[str, type[BaseModel]] = {}


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """The description of a JSON body with this model's schema."""
    _MODELS[model.__name__] = model
    schema = {"$ref": _REFERENCE.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def image_body() -> dict[str, Any]:
    """The description of a body that is the bytes of an image file."""
    raw = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": dict.fromkeys(IMAGE_TYPES, raw)}}


def keyed(extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """The description of a write, which may have an idempotency key; ``extra``: of its body."""
    header = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "A new one for each write. The same request with the same key is done once, within 24 hours.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,128}$"},
    }
    return {"parameters": [header], **(extra or {})}


def complete_openapi(app: FastAPI) -> None:
    """Add the schemas of request bodies and the bearer token to the OpenAPI description."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = generate()
            components = found.setdefault("components", {})
            for model in _MODELS.values():
                schema = model.model_json_schema(ref_template=_REFERENCE)
                components.setdefault("schemas", {}).update(schema.pop("$defs", {}))
                components["schemas"][model.__name__] = schema
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            found["security"] = [{"token": []}]
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
