"""What the owner of a served gallery may do over HTTP: also with models, images and files that only paths name.

``POST /v1/admin/TASK`` needs the token in ``served.json`` in the gallery's folder, which only the user who runs the
server can read; a token of the service is not enough. The answer is a line of JSON for each progress,
``{"progress": ...}``, then one with the ``result`` or the ``error``. Closing the connection stops a task that can be
resumed.
"""

import asyncio
import hmac
import json
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, is_dataclass, replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from holdfast.core.errors import HoldfastError
from holdfast.gallery import BaseGallery, Item
from holdfast.service.body_limits import JSON_TYPES, read_body
from holdfast.service.gallery_jobs import GalleryJobs
from holdfast.service.refusals import INTERNAL_ERROR, LOG, RequestError

PREFIX = "/v1/admin"
OWNER_BODY = 256 * 1024 * 1024
"""Bytes of one command: a batch of items with all the metadata that a gallery keeps."""

OnProgress = Callable[[dict[str, Any]], None]


class OwnerTasks:
    """The endpoints of one application, and the tasks that run now.

    token: what a request needs; new for every server.
    """

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self._stops: set[threading.Event] = set()

    def allows(self, authorization: str | None) -> bool:
        """Whether an Authorization header has the token."""
        given = (authorization or "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(f"Bearer {self.token}".encode(), given)

    def stop(self) -> None:
        """Stop all tasks that can be resumed; they are answered as far as they got."""
        for stop in self._stops:
            stop.set()

    def router(self, jobs: GalleryJobs) -> APIRouter:
        router = APIRouter(prefix=PREFIX, include_in_schema=False)

        @router.post("/{task}", response_model=None)
        async def run(request: Request, task: str) -> StreamingResponse:
            if task not in TASKS:
                raise RequestError(404, f"not found: POST {PREFIX}/{task}")
            text = await read_body(request, replace(jobs.limits, body=max(jobs.limits.body, OWNER_BODY)), JSON_TYPES)
            try:
                arguments = json.loads(text)
            except ValueError:
                arguments = None
            if not isinstance(arguments, dict):
                raise RequestError(400, "the body is not a JSON object")
            return StreamingResponse(self._lines(jobs, task, arguments), media_type="application/x-ndjson")

        return router

    async def _lines(self, jobs: GalleryJobs, name: str, arguments: dict[str, Any]) -> AsyncIterator[bytes]:
        """Run a task in a thread; the lines of its answer."""
        stop, loop = threading.Event(), asyncio.get_running_loop()
        events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        def send(event: dict[str, Any] | None) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        def run() -> None:
            try:
                found = TASKS[name](jobs.gallery, stop, lambda progress: send({"progress": progress}), **arguments)
                send({"result": found})
            except (HoldfastError, OSError, ValueError, TypeError) as error:
                send({"error": str(error)})
            except Exception:  # the client gets an answer whatever happened
                LOG.exception("a task failed")
                send({"error": INTERNAL_ERROR})
            finally:
                send(None)

        self._stops.add(stop)
        task = asyncio.ensure_future(asyncio.to_thread(run))
        try:
            while (event := await events.get()) is not None:
                yield json.dumps(event).encode() + b"\n"
        finally:
            stop.set()  # the client has closed the connection, or the task has ended
            self._stops.discard(stop)
            await asyncio.shield(task)
            jobs.clear_stats()


def _register(gallery: BaseGallery, stop: threading.Event, report: OnProgress, **options: Any) -> Any:
    def progress(stage: str, done: int, total: int) -> None:
        if stop.is_set():
            raise HoldfastError("stopped; the model was not registered")
        report({"stage": stage, "done": done, "total": total})

    return gallery.register(progress=progress, **options).as_json()


def _backfill(gallery: BaseGallery, stop: threading.Event, report: OnProgress, **options: Any) -> Any:
    return asdict(gallery.backfill(stop=stop, progress=lambda state: report(asdict(state)), **options))


def _rollback(gallery: BaseGallery, stop: threading.Event, report: OnProgress, **options: Any) -> Any:
    return gallery.rollback(stop=stop, progress=lambda state: report(asdict(state)), **options)


def _add(gallery: BaseGallery, stop: threading.Event, report: OnProgress, *, items: list[Any], **options: Any) -> Any:
    refused: list[dict[str, str]] = []
    replaced: list[int] = []

    def on_refused(item: Item, error: HoldfastError) -> None:
        refused.append({"id": item.id, "reason": str(error)})

    given = (Item(**fields) for fields in items)
    added = gallery.add(given, refused=on_refused, replaced=replaced.append, **options)
    return {"added": added, "replaced": sum(replaced), "refused": refused}


def _method(name: str) -> Callable[..., Any]:
    def call(gallery: BaseGallery, stop: threading.Event, report: OnProgress, **arguments: Any) -> Any:
        return _plain(getattr(gallery, name)(**arguments))

    return call


def _plain(found: Any) -> Any:
    if isinstance(found, list):
        return [_plain(part) for part in found]
    return asdict(found) if is_dataclass(found) and not isinstance(found, type) else found


TASKS: dict[str, Callable[..., Any]] = {
    "register": _register,
    "backfill": _backfill,
    "rollback": _rollback,
    "add": _add,
    **{name: _method(name) for name in ("search", "delete", "versions", "stats")},
}
"""By name. Arguments: the gallery, an event that stops the task, a callback for progress, then the task's own."""
