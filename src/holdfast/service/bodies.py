"""Bodies of requests: of a kind we asked for, no larger than allowed, arriving in time."""

import asyncio
from collections.abc import Collection
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from holdfast.service.error_answers import validation_reason
from holdfast.service.limits import Limits
from holdfast.service.refusals import RefusedError

Model = TypeVar("Model", bound=BaseModel)

JSON_TYPES = ("application/json",)
IMAGE_TYPES = ("application/octet-stream", "image/jpeg", "image/png", "image/webp", "image/gif", "image/bmp",
               "image/tiff", "image/avif", "image/jp2", "image/x-portable-pixmap")  # fmt: skip
"""None of these can be sent across sites by a plain form: a browser asks first, and is told nothing."""

_CLOSE = {"Connection": "close"}  # the rest of the body is not read


async def read_body(request: Request, limits: Limits, kinds: Collection[str]) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        wanted = kinds if len(kinds) == 1 else ("application/octet-stream", "image/…")
        raise RefusedError(415, f"Content-Type {kind[:60]!r}: wanted {' or '.join(wanted)}", _CLOSE)
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > limits.body:
        raise too_large(limits)
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body:
                    raise too_large(limits)
                parts.append(part)
    except TimeoutError:
        raise RefusedError(408, f"the body did not arrive within {limits.seconds:g} s", _CLOSE) from None
    return b"".join(parts)


def too_large(limits: Limits) -> RefusedError:
    return RefusedError(413, f"the body is larger than {limits.body} bytes", _CLOSE)


async def read_json(request: Request, limits: Limits, model: type[Model]) -> Model:
    return parsed(model, await read_body(request, limits, JSON_TYPES))


def parsed(model: type[Model], text: bytes | str) -> Model:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        malformed = errors[0]["type"] == "json_invalid"
        raise RefusedError(400 if malformed else 422, validation_reason(list(errors))) from None
