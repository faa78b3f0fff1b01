"""Limits of a request, reading its body within them, and returning the memory of large ones."""

import asyncio
import ctypes
import sys
from collections.abc import Collection
from dataclasses import dataclass

from fastapi import Request
from starlette.requests import ClientDisconnect

from holdfast.service.refusals import RequestError

# A form on a page of another site cannot send these types: the browser first asks the service, which does not allow it.
JSON_TYPES = ("application/json",)
IMAGE_TYPES = ("application/octet-stream", "image/jpeg", "image/png", "image/webp", "image/gif", "image/bmp",
               "image/tiff", "image/avif", "image/heic", "image/heif")  # fmt: skip

_CLOSE = {"Connection": "close"}  # the rest of the body is not read


@dataclass(frozen=True)
class Limits:
    """What requests may use, so that no client takes all of the service.

    body: bytes of one body.
    bodies: bytes of all bodies in memory; further requests get 503, but for bodies of at most 1/8192 of it (64 KiB).
    pixels: pixels of one image, by its header.
    k: hits of one search.
    batch: items or ids in one request.
    url: bytes of a query string.
    seconds: time for a body to arrive, and again for the answer.
    in_flight: requests at once; further ones get 503.
    connections: connections at once, fewer if the process may not open so many files; further ones get 503.
    head_seconds: time for a request's line and headers to arrive.
    thumbnail: longer side of a thumbnail in pixels.
    encoder_batch: images that are embedded in one batch; None: the batch size that suits the device.
    encoder_wait_ms: how long the first image of a batch waits for others, in milliseconds.
    task_seconds: processor time to decode one image or to parse one body.
    """

    body: int = 16 * 1024 * 1024
    bodies: int = 512 * 1024 * 1024
    pixels: int = 32 * 1024 * 1024
    k: int = 1000
    batch: int = 256
    url: int = 32 * 1024
    seconds: float = 30.0
    in_flight: int = 256
    connections: int = 1000
    head_seconds: float = 10.0
    thumbnail: int = 512
    encoder_batch: int | None = None
    encoder_wait_ms: float = 2.0
    task_seconds: float = 4.0

    @property
    def task_memory(self) -> int:
        """Bytes of memory to decode one image or to parse one body. Pillow takes 4 bytes for a pixel."""
        return max(5 * self.pixels + 2**23, 8 * self.body)


async def read_body(request: Request, limits: Limits, content_types: Collection[str]) -> bytes:
    """The body, if it has one of these types, is not too large and arrives in time; else 415, 413 or 408."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in content_types:
        shown = content_types if len(content_types) == 1 else ("application/octet-stream", "image/…")
        raise RequestError(415, f"Content-Type {given[:60]!r}: expected {' or '.join(shown)}", _CLOSE)
    too_large = f"the body is larger than {limits.body} bytes"
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > limits.body:
        raise RequestError(413, too_large, _CLOSE)
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.seconds):
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part, more = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                if size > limits.body:
                    raise RequestError(413, too_large, _CLOSE)
                parts.append(part)
    except TimeoutError:
        raise RequestError(408, f"the body did not arrive within {limits.seconds:g} s", _CLOSE) from None
    return b"".join(parts)


def return_freed_memory() -> None:
    """Return to the system what the C library keeps of freed memory. Without glibc nothing is done.

    After a large body has been parsed, the C library keeps several times its size for later use.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not in musl
        if trim is not None:
            trim(0)
