"""Bodies of requests: of a kind we asked for, no larger than allowed, arriving in time.

What one request may ask for, so that no client can take the service from the others.

Ids from outside. They are never file names here, but what looks like a way out of a folder is refused all the same:
whoever later writes an export or a cache by id would be the one to find out.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import unquote

from fastapi import Request
from pydantic import BaseModel, ValidationError

from holdfast.errors import HoldfastError
from holdfast.gallery.items import checked_id
from holdfast.service.errors import RefusedError, validation_reason


@dataclass(frozen=True)
class Limits:
    """body: bytes. bodies: bytes of all bodies that are held at once; more are sent away with 503. pixels: of one
    image, by its header. k: hits. batch: items or ids in one request. url: bytes of a query string. seconds: for a body
    to arrive, and again for the answer. in_flight: requests at once; more are sent away with 503. thumbnail: its longer
    side. encoder_batch, encoder_wait_ms: how many images are embedded together (None: as many as suit the device), and
    how long the first of them waits for others."""

    body: int = 16 * 1024 * 1024
    bodies: int = 512 * 1024 * 1024
    pixels: int = 32 * 1024 * 1024
    k: int = 1000
    batch: int = 256
    url: int = 32 * 1024
    seconds: float = 30.0
    in_flight: int = 256
    thumbnail: int = 512
    encoder_batch: int | None = None
    encoder_wait_ms: float = 2.0


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


def safe_id(given: str) -> str:
    """An id that a gallery takes and that, read as a relative path, stays below its folder."""
    name = checked_id(given)
    for form in (name, unquote(name)):
        if form.startswith(("/", "~")) or "\\" in form or "\0" in form or {".", ".."} & set(form.split("/")):
            raise HoldfastError(f"id {name[:80]!r}: no leading / or ~, no backslash, no part that is . or ..")
    return name
