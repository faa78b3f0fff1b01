"""The socket in the gallery's folder, which only the user who runs the server can open, and its admin endpoints.

They are for the owner of the gallery: register, backfill, roll back, and items by their paths. They exist on this
socket only, because they name files of this machine. The answer is a line of JSON for each progress,
``{"progress": ...}``, then one with the ``result`` or the ``error``. Closing the connection stops a task that can be
resumed.
"""

import asyncio
import json
import os
import socket
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from holdfast.core.errors import HoldfastError
from holdfast.service.admin_tasks import TASKS
from holdfast.service.body_limits import JSON_TYPES, read_body
from holdfast.service.gallery_jobs import GalleryJobs
from holdfast.service.refusals import INTERNAL_ERROR, LOG, RequestError
from holdfast.service.served_gallery import SOCKET, socket_address

ADMIN_BODY = 256 * 1024 * 1024
"""Bytes of one command: a batch of items with all the metadata that a gallery keeps."""


class RunningTasks:
    """The tasks that run now, so that they can be stopped when the service ends."""

    def __init__(self) -> None:
        self._stops: set[threading.Event] = set()
        self._tasks: set[asyncio.Future[Any]] = set()

    def start(self, jobs: GalleryJobs, name: str, arguments: dict[str, Any]) -> AsyncIterator[bytes]:
        """Start a task; the lines of its answer."""
        stop, loop = threading.Event(), asyncio.get_running_loop()
        events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        def on_progress(progress: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(events.put_nowait, {"progress": progress})

        def run() -> dict[str, Any]:
            try:
                return {"result": TASKS[name](jobs.gallery, stop, on_progress, **arguments)}
            except (HoldfastError, OSError, ValueError, TypeError) as error:
                return {"error": str(error)}
            except Exception:  # the client gets an answer whatever happened
                LOG.exception("a task failed")
                return {"error": INTERNAL_ERROR}

        def ended(task: "asyncio.Future[Any]") -> None:
            self._tasks.discard(task)
            self._stops.discard(stop)
            jobs.clear_stats()
            events.put_nowait(None if task.cancelled() else task.result())
            events.put_nowait(None)

        task = asyncio.ensure_future(asyncio.to_thread(run))
        self._tasks.add(task)
        self._stops.add(stop)
        task.add_done_callback(ended)
        return _lines(events, stop)

    async def stop(self) -> None:
        """Stop all tasks that can be resumed, and wait for all."""
        for stop in self._stops:
            stop.set()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _lines(events: "asyncio.Queue[dict[str, Any] | None]", stop: threading.Event) -> AsyncIterator[bytes]:
    try:
        while (event := await events.get()) is not None:
            yield json.dumps(event).encode() + b"\n"
    finally:
        stop.set()  # the client has closed the connection, or the task has ended


def admin_routes(jobs: GalleryJobs, running: RunningTasks) -> APIRouter:
    router = APIRouter(prefix="/v1/admin", tags=["admin"])
    for name in TASKS:
        router.add_api_route(f"/{name}", _endpoint(jobs, running, name), methods=["POST"], response_model=None)
    return router


def _endpoint(jobs: GalleryJobs, running: RunningTasks, name: str) -> Any:
    async def run(request: Request) -> StreamingResponse:
        # Only commands of the user who serves the gallery arrive here, so a larger body is accepted.
        limits = replace(jobs.limits, body=max(jobs.limits.body, ADMIN_BODY))
        text = await read_body(request, limits, JSON_TYPES)
        try:
            arguments = json.loads(text)
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            raise RequestError(400, "the body is not a JSON object")
        return StreamingResponse(running.start(jobs, name, arguments), media_type="application/x-ndjson")

    run.__name__, run.__doc__ = name, f"See ``Gallery.{name}``."
    return run


class LocalSocket:
    """Serves an application on the socket while its context is entered.

    app: with the admin routes.
    folder: the gallery's folder, which this process has locked.
    running: the tasks of the admin routes; they are stopped and answered at the end.
    """

    def __init__(self, app: ASGIApp, folder: Path, running: RunningTasks) -> None:
        self._app, self._folder, self._running = app, folder, running
        self._server: asyncio.AbstractServer | None = None
        self._state = ServerState()

    async def __aenter__(self) -> Self:
        # A socket that is there was left by a process that was killed: this process has the gallery's lock.
        (self._folder / SOCKET).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with socket_address(self._folder) as address:
                listening.bind(address)
        except OSError as error:
            listening.close()
            raise HoldfastError(f"{self._folder / SOCKET}: cannot listen here ({error.strerror})") from error
        finally:
            os.umask(before)
        # Logging stays as the server or the caller has set it up.
        config = uvicorn.Config(self._app, lifespan="off", ws="none", proxy_headers=False, log_config=None)
        config.load()
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: HttpToolsProtocol(config=config, server_state=self._state, app_state={}), sock=listening
        )
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        (self._folder / SOCKET).unlink(missing_ok=True)
        await self._running.stop()
        if self._state.tasks:  # every request that has begun is answered
            await asyncio.wait(self._state.tasks, timeout=5)
        for connection in list(self._state.connections):
            connection.transport.close()
