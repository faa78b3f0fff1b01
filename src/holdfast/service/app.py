"""The ASGI application: the endpoints of one open gallery, and what is the same for all requests and answers."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.environment import DISTRIBUTION, version
from holdfast.gallery import OpenGallery
from holdfast.service.access_control import AccessControl, is_loopback
from holdfast.service.body_limits import Limits
from holdfast.service.error_answers import (
    CLIENT_GONE,
    PRIVATE_FOLDER,
    error_response,
    install_error_handlers,
    response_for,
)
from holdfast.service.gallery_jobs import GalleryJobs
from holdfast.service.openapi_schema import ERROR_RESPONSES, complete_openapi
from holdfast.service.owner_tasks import PREFIX, OwnerTasks
from holdfast.service.prometheus import Metrics
from holdfast.service.refusals import LOG, RequestError
from holdfast.service.routes_items import item_routes
from holdfast.service.routes_search import direct_searches, search_routes
from holdfast.service.routes_state import page_routes, state_routes

# The page shows images, which it fetches with its token, from blobs. It loads nothing from other hosts and submits no
# forms. Browsers that support Trusted Types refuse to parse text as markup.
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
_RETRY = {"Retry-After": "1"}
_SMALL_SHARE = 8192
_ANSWERED_UNDER_LOAD = "/v1/health"


def build_app(
    gallery: OpenGallery,
    *,
    access: AccessControl,
    limits: Limits | None = None,
    name: str = "gallery",
    owner: OwnerTasks | None = None,
    on_started: Callable[[], None] = lambda: None,
) -> "RequestMiddleware":
    """An ASGI application for an open gallery. It ends its threads at shutdown but does not close the gallery.

    access: who may send requests.
    limits: of requests; the defaults of ``Limits`` if None.
    name: the gallery's name as clients see it.
    owner: the tasks of the gallery's owner; None: they are not offered.
    on_started: called when requests are about to be answered.
    """
    limits = limits or Limits()
    metrics, jobs = Metrics(), GalleryJobs(gallery, limits, name=name)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(jobs.close)
            starting = asyncio.create_task(jobs.workers.start())  # beside the first requests
            on_started()
            yield
            await starting

    app = FastAPI(
        title="Holdfast gallery",
        version=version(DISTRIBUTION) or "0",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # the redirection would be built from the request's Host
        lifespan=lifespan,
        responses=ERROR_RESPONSES,
    )
    install_error_handlers(app)
    routers = [search_routes(jobs, access), item_routes(jobs, access), state_routes(jobs, access, metrics)]
    for router in (*routers, page_routes(), *(() if owner is None else (owner.router(jobs),))):
        app.include_router(router)
    complete_openapi(app)
    return RequestMiddleware(app, access, limits, metrics, direct_searches(jobs, access), gallery.folder, owner)


class RequestMiddleware:
    """An ASGI application around another one: checks host, origin and load, adds headers, counts requests.

    direct: endpoints of POST requests, by path, that are called without ``app``.
    private_folder: the gallery's folder, which only answers to its owner may name.
    owner: decides who the owner is, whose requests are answered whatever the load is.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: AccessControl,
        limits: Limits,
        metrics: Metrics,
        direct: Mapping[str, Callable[[Request], Awaitable[Response]]],
        private_folder: Path,
        owner: OwnerTasks | None,
    ) -> None:
        self._app, self._access, self._limits, self._metrics, self._direct = app, access, limits, metrics, direct
        self._private_folder, self._owner = private_folder, owner
        self._body_bytes = 0  # of the bodies of all requests that are being answered
        self._arriving = 0  # requests whose body is waited for: slow clients leave the others their turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, body_bytes, arrived = time.perf_counter(), CLIENT_GONE, 0, False
        direct = self._direct.get(scope["path"]) if scope["method"] == "POST" else None
        small = self._limits.bodies // _SMALL_SHARE  # such a body never waits for large ones, also if they are slow

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message.get("headers", ()))
                cached = any(name == b"cache-control" for name, _ in headers)
                message = {**message, "headers": [*headers, *_HEADERS, *(() if cached else (_NO_STORE,))]}
            await send(message)

        async def receive_within_limit() -> Message:
            nonlocal arrived, body_bytes
            if arrived:
                return await receive()
            self._arriving += 1
            try:
                message = await receive()
            finally:
                self._arriving -= 1
            arrived = not message.get("more_body", False)
            size = len(message.get("body", b""))
            if body_bytes + size > small and self._body_bytes + size > self._limits.bodies:
                # The connection is closed because the rest of the body is not read.
                headers = {**_RETRY, "Connection": "close"}
                raise RequestError(503, "too many large requests at once; try again", headers)
            body_bytes += size
            self._body_bytes += size
            if arrived:
                self._check_load()
            return message

        if self._is_owners(scope):
            await self._app(scope, receive, send_with_headers)
            return
        scope[PRIVATE_FOLDER] = self._private_folder
        self._metrics.in_flight += 1
        try:
            try:
                self._check(scope)
            except RequestError as error:
                answer = error_response(error.status, error.reason, error.headers)
                await answer(scope, receive, send_with_headers)
            else:
                if direct is None:
                    await self._app(scope, receive_within_limit, send_with_headers)
                else:
                    answer = await _answer(direct, Request(scope, receive_within_limit))
                    await answer(scope, receive, send_with_headers)
        finally:
            self._body_bytes -= body_bytes
            self._metrics.in_flight -= 1
            route: Any = scope.get("route")
            path = scope["path"] if direct is not None else getattr(route, "path", "unmatched")
            self._metrics.observe(path, scope["method"], status, time.perf_counter() - started)

    def _is_owners(self, scope: Scope) -> bool:
        """Whether the request is for a task of the gallery's owner, has the owner's token and is from this machine."""
        if self._owner is None or not scope["path"].startswith(f"{PREFIX}/"):
            return False
        headers = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        client, server = (scope.get(side) or ("",) for side in ("client", "server"))
        is_local = is_loopback(client[0]) or client[0] == server[0]
        return is_local and len(headers) == 1 and self._owner.allows(headers[0])

    def _check(self, scope: Scope) -> None:
        headers: dict[bytes, list[str]] = {b"host": [], b"origin": []}
        for name, value in scope["headers"]:
            if name in headers:
                headers[name].append(value.decode("latin-1"))
        self._access.check_host_and_origin(headers[b"host"], headers[b"origin"])
        if scope["path"].startswith(f"{PREFIX}/"):
            raise RequestError(401, "only the user who serves the gallery can do this, by holdfast gallery")
        if len(scope.get("query_string", b"")) > self._limits.url:
            raise RequestError(414, f"the query string is longer than {self._limits.url} bytes")
        if scope["path"] != _ANSWERED_UNDER_LOAD:
            self._check_load()

    def _check_load(self) -> None:
        if self._metrics.in_flight - self._arriving > self._limits.in_flight:
            raise RequestError(503, "too many requests at once; try again", _RETRY)


async def _answer(endpoint: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    try:
        return await endpoint(request)
    except Exception as error:
        answer = response_for(error, request)
        if answer.status_code == 500:
            LOG.exception("an endpoint failed")
        return answer
