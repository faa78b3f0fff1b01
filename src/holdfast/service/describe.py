"""Request bodies in the OpenAPI description: we read them ourselves, so FastAPI has to be told."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from holdfast.service.schema import Error

_REFERENCE = "#/components/schemas/{model}"
_REFUSED = (400, 401, 403, 404, 408, 413, 414, 415, 421, 422, 503)
REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": Error} for status in _REFUSED}
PUBLIC: dict[str, Any] = {"security": []}
_MODELS: dict[str, type[BaseModel]] = {}


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """A JSON body of this model."""
    _MODELS[model.__name__] = model
    schema = {"$ref": _REFERENCE.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def image_body() -> dict[str, Any]:
    """The bytes of an image file."""
    raw = {"schema": {"type": "string", "format": "binary"}}
    kinds = ("application/octet-stream", "image/jpeg", "image/png", "image/webp")
    return {"requestBody": {"required": True, "content": dict.fromkeys(kinds, raw)}}


def describe(app: FastAPI) -> None:
    """Complete the description: the bodies' schemas, and how to show a token."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = made()
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
