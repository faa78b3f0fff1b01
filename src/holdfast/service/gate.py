"""What every request passes first, and what every answer carries."""

import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.service.access import Access
from holdfast.service.errors import RefusedError, error_response
from holdfast.service.metrics import Metrics
from holdfast.service.request_bodies import Limits

# Images that the page fetched with its token are shown from blobs; nothing is ever loaded from elsewhere. The browser
# sends no form by itself, and where it knows Trusted Types it refuses to make markup of text.
POLICY = (
    "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_NO_STORE = (b"cache-control", b"no-store")
_LATER = {"Retry-After": "1", "Connection": "close"}  # the rest of the body is not read
ALWAYS = "/v1/health"
"""Answered however busy the service is."""


class Gate:
    """ASGI in, ASGI out: address, load, headers, counts."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits, metrics: Metrics) -> None:
        self._app, self._access, self._limits, self._metrics = app, access, limits, metrics
        self._held = 0  # bytes of the bodies of all requests that are being answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 499  # nobody waited for an answer

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = list(message.get("headers", ()))
                cached = any(name == b"cache-control" for name, _ in given)
                message = {**message, "headers": [*given, *_HEADERS, *(() if cached else (_NO_STORE,))]}
            await send(message)

        held = 0

        async def receive_on() -> Message:
            nonlocal held
            message = await receive()
            size = len(message.get("body", b""))
            if size and self._held + size > self._limits.bodies:
                raise RefusedError(503, "too many large requests at once; try again", _LATER)
            held += size
            self._held += size
            return message

        self._metrics.in_flight += 1
        try:
            try:
                self._check(scope)
            except RefusedError as refusal:
                answer = error_response(refusal.status, refusal.reason, refusal.headers)
                await answer(scope, receive, send_on)
            else:
                await self._app(scope, receive_on, send_on)
        finally:
            self._held -= held
            self._metrics.in_flight -= 1
            route: Any = scope.get("route")
            path = getattr(route, "path", "unmatched")
            self._metrics.observe(path, scope["method"], status, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"host", b"origin")}
        self._access.check_address(headers.get(b"host"), headers.get(b"origin"))
        if len(scope.get("query_string", b"")) > self._limits.url:
            raise RefusedError(414, f"the query string is longer than {self._limits.url} bytes")
        if self._metrics.in_flight > self._limits.in_flight and scope["path"] != ALWAYS:
            raise RefusedError(503, "too many requests at once; try again", {"Retry-After": "1"})
