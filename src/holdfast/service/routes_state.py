"""Endpoints that say how things stand: the gallery, its versions, health, readiness, metrics."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response

from holdfast.service.access import Access
from holdfast.service.describe import PUBLIC
from holdfast.service.limits import Limits
from holdfast.service.metrics import Metrics
from holdfast.service.versions import versions_json
from holdfast.service.work import Work

_SHOWN = ("body", "pixels", "k", "batch", "thumbnail")


def state_routes(work: Work, access: Access, limits: Limits, metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["state"])

    @router.get("/v1/gallery", response_model=None)
    async def gallery(request: Request) -> dict[str, Any]:
        """How much there is, what can be filtered by, and what a request may ask for."""
        authorization = request.headers.get("authorization")
        access.demand("read", authorization)
        stats = await work.stats()
        return {
            "name": work.name,
            "items": stats["items"],
            "labelled": stats["labelled"],
            "with_image": stats["with_path"],
            "fields": stats["fields"],
            "mode": stats["mode"],
            "newest": work.gallery.newest().number,
            "scope": "read" if work.read_only else access.scope(authorization),
            "limits": {name: value for name, value in asdict(limits).items() if name in _SHOWN},
        }

    @router.get("/v1/versions", response_model=None)
    async def versions(request: Request) -> dict[str, Any]:
        """The models, oldest first, with their share of the items, and which was found compatible with which."""
        access.demand("read", request.headers.get("authorization"))
        stats = await work.stats()
        return versions_json(work.gallery.versions(), work.gallery.newest().number, stats)

    @router.get("/v1/health", response_model=None, openapi_extra=PUBLIC)
    async def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok"}

    @router.get("/v1/ready", response_model=None, openapi_extra=PUBLIC)
    async def ready() -> dict[str, Any]:
        """The gallery answers; 503 where it does not."""
        await work.stats()
        return {"status": "ready", "version": work.gallery.newest().number}

    @router.get("/metrics", response_model=None)
    async def prometheus(request: Request) -> Response:
        """Counters for Prometheus."""
        access.demand("read", request.headers.get("authorization"))
        queues = {
            name: (queue.queued, queue.jobs, queue.batches)
            for name, queue in (("encoder", work.encoder), ("writer", work.writer))
        }
        text = metrics.text(await work.stats(), work.gallery.newest().number, queues)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
