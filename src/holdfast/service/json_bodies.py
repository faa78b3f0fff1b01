"""The JSON bodies of requests: their schemas, and parsing them within bounds.

Without fastapi: worker processes import this file, and they should start fast.
"""

import base64
import binascii
import json
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
)
from pydantic import ValidationError as PydanticError
from pydantic_core import PydanticCustomError

from holdfast.core.errors import HoldfastError
from holdfast.gallery.item_limits import LARGEST_WHOLE, LONGEST_ID, LONGEST_TEXT, MOST_FIELDS
from holdfast.service.refusals import RequestError, validation_reason

MOST_NUMBERS = 65_536
MOST_CONDITIONS = 32
MOST_VALUES = 256
"""Conditions of a filter, and values in the lists of all of them."""
MOST_VERSIONS = 256
MOST_IN_BODY = 2**20
"""Values in the body of one request. More vectors fit into a request as base64."""
HIGHEST_VERSION = 2**31 - 1

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[StrictStr, Field(max_length=LONGEST_TEXT)]
# The bounds are described but not checked: a number that is refused here would be taken as Real and rounded.
Whole = Annotated[StrictInt, Field(json_schema_extra={"minimum": -LARGEST_WHOLE, "maximum": LARGEST_WHOLE})]
Real = Annotated[StrictFloat, Field(allow_inf_nan=False)]
Value = StrictBool | Whole | Real | Text
Id = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_ID)]
# Lists end at their first error: an error for each of a million values would take a gigabyte.
Vector = Annotated[
    Annotated[list[Number], Field(max_length=MOST_NUMBERS, fail_fast=True)] | StrictStr,
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
        fail_fast=True,
        description="Only items that one of these versions embedded; default: all versions.",
        examples=[[1, 2]],
    ),
]
Condition = Value | Annotated[list[Value], Field(max_length=MOST_VALUES, fail_fast=True)] | dict[StrictStr, Number]


def _bounded(given: dict[str, Any]) -> dict[str, Any]:
    values = sum(len(accepted) for accepted in given.values() if isinstance(accepted, list))
    if values > MOST_VALUES:
        raise PydanticCustomError("too_many_values", f"lists {values} values; at most {MOST_VALUES} are taken")
    return given


Filter = Annotated[
    dict[StrictStr, Condition],
    AfterValidator(_bounded),
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
    offset: StrictInt = Field(0, ge=0, description="Leave out so many of the best hits; k + offset has k's limit.")
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
    items: list[NewItem] = Field(min_length=1, fail_fast=True)
    version: VersionNumber | None = Field(
        None, description="The version that embedded the vectors. Leave it out for images."
    )


class Ids(_Strict):
    ids: list[Id] = Field(min_length=1, fail_fast=True)


class FilterText(RootModel[Filter]):
    """A filter as JSON text in a query string."""


class MetadataText(RootModel[Annotated[dict[StrictStr, Value], Field(max_length=MOST_FIELDS)]]):
    """Metadata as JSON text in a query string."""


class Bounds(NamedTuple):
    """How much a body may contain.

    values: members of lists and objects, at all levels.
    names: members of objects, at all levels.
    """

    values: int
    names: int


BODIES: dict[str, type[BaseModel]] = {model.__name__: model for model in (VectorSearch, IdSearch, NewItems, Ids)}
"""The bodies that clients send, by name."""


def bounds_of(model: type[BaseModel], batch: int) -> Bounds:
    """The bounds of a body; ``batch``: the most items or ids in one request."""
    if model is NewItems:
        each = MOST_NUMBERS + MOST_FIELDS + 8
        return Bounds(min(MOST_IN_BODY, batch * each), batch * (MOST_FIELDS + 8) + 8)
    if model is Ids:
        return Bounds(10 * batch + 100, 8)
    return Bounds(MOST_NUMBERS + MOST_VALUES + 8 * MOST_CONDITIONS + MOST_VERSIONS + 8, 8 * MOST_CONDITIONS + 8)


Model = TypeVar("Model", bound=BaseModel)


def parse_json(model: type[Model], text: bytes | str) -> Model:
    """JSON as a model; 400 if it is not JSON, 422 if it does not fit the model."""
    try:
        return model.model_validate_json(text)
    except PydanticError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        malformed = errors[0]["type"] == "json_invalid"
        raise RequestError(400 if malformed else 422, validation_reason(list(errors))) from None


def check_bounds(text: bytes, bounds: Bounds) -> None:
    """Refuse a body with too many values before they are parsed: a parsed value takes 30 times the memory of its text.

    Characters within strings are not counted. Text that is not JSON may pass; parsing it then fails.
    """
    # Characters within strings included: if there are few enough, nothing else needs to be looked at.
    if text.count(b":") <= bounds.names and sum(map(text.count, _OPENING)) <= bounds.values:
        return
    if b"\\" in text:  # within strings only, or the text is not JSON
        text = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    values = names = 0
    within = np.uint8(0)
    for start in range(0, len(text), _BLOCK):
        block = np.frombuffer(text, np.uint8, min(_BLOCK, len(text) - start), start)
        inside = np.bitwise_xor.accumulate((block == ord('"')).view(np.uint8)) ^ within
        within = inside[-1]
        outside = block[inside == 0]
        names += int(np.count_nonzero(outside == ord(":")))
        values += int(np.count_nonzero((outside == ord(",")) | (outside == ord("[")) | (outside == ord("{"))))
    if names > bounds.names:
        raise RequestError(422, f"the body has {names} names; at most {bounds.names} are taken")
    if values > bounds.values:
        raise RequestError(422, f"the body has {values} values; at most {bounds.values} are taken")


_BLOCK = 2**20
_OPENING = (b",", b"[", b"{")


def checked_body(model: type[BaseModel], text: bytes, batch: int) -> bytes:
    """A body of a client, checked: the same as JSON with every vector as base64, which ``read_checked`` reads fast."""
    check_bounds(text, bounds_of(model, batch))
    body = parse_json(model, text)
    for part in body.items if isinstance(body, NewItems) else [body]:
        vector = getattr(part, "vector", None)
        if vector is not None:
            packed = base64.b64encode(parse_vector(vector).astype("<f4").tobytes()).decode()
            object.__setattr__(part, "vector", packed)  # without validation, which is not needed again
    return json.dumps(body.model_dump(), ensure_ascii=False, separators=(",", ":")).encode()


def read_checked(model: type[Model], text: bytes) -> Model:
    """The model of a body that ``checked_body`` has checked."""
    fields: dict[str, Any] = json.loads(text)
    if "items" in fields:
        fields["items"] = [NewItem.model_construct(**row) for row in fields["items"]]
    return model.model_construct(**fields)


def parse_vector(given: list[float] | str) -> np.ndarray:
    """A vector of a request as float32, 1-D. The gallery checks its length and values."""
    if not isinstance(given, str):
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
