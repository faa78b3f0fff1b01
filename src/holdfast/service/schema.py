"""The schemas of requests and answers, and the parts of the OpenAPI description that FastAPI does not generate.

The endpoints read request bodies themselves, so FastAPI does not know the schemas of the bodies.
"""

import base64
import binascii
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, RootModel, StrictBool, StrictFloat, StrictInt, StrictStr

from holdfast.errors import HoldfastError
from holdfast.gallery.filters import LARGEST_WHOLE, LONGEST_TEXT
from holdfast.gallery.items import LONGEST_ID, MOST_FIELDS

MOST_NUMBERS = 65_536
MOST_CONDITIONS = 32
MOST_VALUES = 256
MOST_VERSIONS = 256
HIGHEST_VERSION = 2**31 - 1

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[StrictStr, Field(max_length=LONGEST_TEXT)]
# The bounds are described but not checked: a number that is refused here would be taken as Real and rounded.
Whole = Annotated[StrictInt, Field(json_schema_extra={"minimum": -LARGEST_WHOLE, "maximum": LARGEST_WHOLE})]
Real = Annotated[StrictFloat, Field(allow_inf_nan=False)]
Value = StrictBool | Whole | Real | Text
Id = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_ID)]
Vector = Annotated[
    list[Number] | StrictStr,
    Field(
        description="Numbers, or the base64 of little-endian float32: full (K - 1) or compact, of any length.",
        union_mode="left_to_right",
    ),
]
VersionNumber = Annotated[StrictInt, Field(ge=0, le=HIGHEST_VERSION)]  # 0 is the version of an attached store's vectors
IndexedBy = Annotated[
    list[VersionNumber],
    Field(
        min_length=1,
        max_length=MOST_VERSIONS,
        description="Only items that one of these versions embedded; default: all versions.",
        examples=[[1, 2]],
    ),
]
Condition = Value | Annotated[list[Value], Field(max_length=MOST_VALUES)] | dict[StrictStr, Number]
Filter = Annotated[
    dict[StrictStr, Condition],
    Field(
        max_length=MOST_CONDITIONS,
        description="All conditions must hold: a value, a list of accepted values, or bounds gt, gte, lt, lte.",
        examples=[{"shop": "north", "price": {"lt": 5}}],
    ),
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Search(_Strict):
    k: StrictInt = Field(10, ge=1, description="Number of hits; GET /v1/gallery gives the limit.")
    filter: Filter | None = None
    indexed_by: IndexedBy | None = None
    exact: StrictBool = Field(False, description="Compare with every vector, without the index.")


class VectorSearch(_Search):
    vector: Vector
    version: VersionNumber | None = Field(None, description="The version that embedded the vector; default: newest.")


class IdSearch(_Search):
    id: Id


class NewItem(_Strict):
    id: Id
    vector: Vector | None = None
    image: StrictStr | None = Field(None, description="Base64 of an image file's bytes.")
    label: Text | None = None
    metadata: Annotated[dict[StrictStr, Value], Field(max_length=MOST_FIELDS)] = {}


class NewItems(_Strict):
    items: list[NewItem] = Field(min_length=1)
    version: VersionNumber | None = Field(
        None, description="The version that embedded the vectors. Leave it out for images."
    )


class Ids(_Strict):
    ids: list[Id] = Field(min_length=1)


class FilterText(RootModel[Filter]):
    """A filter as JSON text in a query string."""


class MetadataText(RootModel[Annotated[dict[StrictStr, Value], Field(max_length=MOST_FIELDS)]]):
    """Metadata as JSON text in a query string."""


class Hit(BaseModel):
    id: str
    score: float = Field(description="Hits are ranked by it; comparable between versions.")
    cosine: float = Field(description="Cosine of query and item in the space of the item's version.")
    version: int = Field(description="The version that embedded the item.")
    label: str | None
    metadata: dict[str, Any]
    image: bool = Field(description="Whether the gallery has the path of its image, for a thumbnail.")


class Hits(BaseModel):
    version: int = Field(description="The version that embedded the query.")
    hits: list[Hit]


class ItemInfo(BaseModel):
    id: str
    version: int
    label: str | None
    metadata: dict[str, Any]
    image: bool


class Stored(BaseModel):
    stored: int
    version: int


class Deleted(BaseModel):
    deleted: list[str]
    unknown: list[str]


class Reason(BaseModel):
    status: int
    reason: str


class Error(BaseModel):
    error: Reason


_REFERENCE = "#/components/schemas/{model}"
_ERROR_STATUSES = (400, 401, 403, 404, 408, 413, 414, 415, 421, 422, 503)
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
    kinds = ("application/octet-stream", "image/jpeg", "image/png", "image/webp")
    return {"requestBody": {"required": True, "content": dict.fromkeys(kinds, raw)}}


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


def parse_vector(given: list[float] | str) -> np.ndarray:
    """A vector of a request as float32, 1-D. The gallery checks its length and values."""
    if not isinstance(given, str):
        if len(given) > MOST_NUMBERS:
            raise HoldfastError(f"vector: {len(given)} numbers; at most {MOST_NUMBERS} are taken")
        with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which the gallery refuses
            return np.array(given, dtype=np.float32)
    raw = decode_base64(given, "vector")
    if len(raw) % 4 or len(raw) > 4 * MOST_NUMBERS:
        raise HoldfastError(f"vector: {len(raw)} bytes are not float32 numbers, or more than {MOST_NUMBERS}")
    return np.frombuffer(raw, dtype="<f4").astype(np.float32)


def decode_base64(text: str, field: str) -> bytes:
    """The bytes of a field of a request."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        raise HoldfastError(f"{field}: not base64") from None
