"""Endpoints that describe the gallery, its versions and the service, and the files of the web page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

from fastapi import APIRouter, Request, Response

from holdfast.gallery import Version
from holdfast.service.access_control import AccessControl
from holdfast.service.gallery_jobs import GalleryJobs
from holdfast.service.openapi_schema import NO_TOKEN_NEEDED
from holdfast.service.prometheus import CONTENT_TYPE, Metrics
from holdfast.service.refusals import RequestError

NOT_CHECKED = (
    "not checked: when it was registered, that version held no items with labels and images that could be read"
)
PAGE = Path(__file__).parent / "page"
_LIMITS_SHOWN = ("body", "pixels", "k", "batch", "thumbnail")
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def state_routes(jobs: GalleryJobs, access: AccessControl, metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["state"])

    @router.get("/v1/gallery", response_model=None)
    async def gallery(request: Request) -> dict[str, Any]:
        """Counts, fields to filter by, the scope of the token, and the limits of a request."""
        authorization = request.headers.get("authorization")
        access.require("read", authorization)
        stats = await jobs.stats()
        return {
            "name": jobs.name,
            "items": stats["items"],
            "labelled": stats["labelled"],
            "with_image": stats["with_path"],
            "fields": stats["fields"],
            "newest": jobs.gallery.newest().number,
            "scope": "read" if jobs.read_only else access.scope(authorization),
            "limits": {name: value for name, value in asdict(jobs.limits).items() if name in _LIMITS_SHOWN},
        }

    @router.get("/v1/versions", response_model=None)
    async def versions(request: Request) -> dict[str, Any]:
        """The models, oldest first, with their shares of the items and bridges, and the compatibility matrix."""
        access.require("read", request.headers.get("authorization"))
        stats = await jobs.stats()
        return _versions_json(jobs.gallery.versions(), jobs.gallery.newest().number, stats)

    @router.get("/v1/health", response_model=None, openapi_extra=NO_TOKEN_NEEDED)
    async def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok"}

    @router.get("/v1/ready", response_model=None, openapi_extra=NO_TOKEN_NEEDED)
    async def ready() -> dict[str, Any]:
        """The gallery answers; 503 if it does not."""
        await jobs.stats()
        return {"status": "ready", "version": jobs.gallery.newest().number}

    @router.get("/metrics", response_model=None)
    async def prometheus(request: Request) -> Response:
        """Metrics for Prometheus."""
        access.require("read", request.headers.get("authorization"))
        queues = {
            name: (queue.waiting, queue.jobs, queue.batches)
            for name, queue in (("encoder", jobs.encoder), ("writer", jobs.writer))
        }
        text = metrics.text(await jobs.stats(), jobs.gallery.newest().number, queues, jobs.exposure.places())
        return Response(text, media_type=CONTENT_TYPE)

    return router


def _versions_json(versions: Sequence[Version], newest: int, stats: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of ``GET /v1/versions``.

    versions: oldest first.
    newest: number of the version that embeds queries; not the last one while the last one is being rolled back.
    stats: the gallery's ``stats``.

    ``share`` is a version's share of all items, None in an empty gallery. ``matrix`` has a cell for each version and
    each older one: the result of the check at the newer one's registration, or a verdict of None and the reason.
    ``bridges`` are those that carry a version's queries to older versions' items; see ``Version``.
    """
    counts = {row["version"]: row for row in stats["versions"]}
    total = sum(row["items"] for row in stats["versions"])
    rows = [
        {
            "number": one.number,
            "name": PurePath(one.source).name,
            "backbone": one.backbone,
            "weights": one.weights_sha256[:12],
            "dim": one.dim,
            "stored_dim": one.stored_dim,
            "slots": one.slots,
            "registered": one.registered,
            "newest": one.number == newest,
            "items": counts.get(one.number, {}).get("items", 0),
            "unindexed": counts.get(one.number, {}).get("unindexed", 0),
            "share": counts.get(one.number, {}).get("items", 0) / total if total else None,
            "bridges": one.bridges,
        }
        for one in versions
    ]
    cells = [_matrix_cell(new, old) for new in versions for old in versions if old.number < new.number]
    return {"items": total, "versions": rows, "matrix": cells}


def _matrix_cell(new: Version, old: Version) -> dict[str, Any]:
    pair = {"query": new.number, "items": old.number}
    for check in new.checks:
        if check["version"] == old.number:
            return {**pair, **{name: value for name, value in check.items() if name != "version"}}
    return {**pair, "verdict": None, "reason": NOT_CHECKED}


def page_routes() -> APIRouter:
    """The web page: the files of the folder ``page``, by name."""
    router = APIRouter(include_in_schema=False)
    # A requested name is looked up here and never joined to a path.
    files = {file.name: file for file in PAGE.iterdir() if file.suffix in _MEDIA_TYPES}

    def file_response(name: str) -> Response:
        if name not in files:
            raise RequestError(404, "no such file")
        media_type = _MEDIA_TYPES[files[name].suffix]
        return Response(files[name].read_bytes(), media_type=media_type, headers={"Cache-Control": "no-cache"})

    @router.get("/", response_model=None)
    async def index() -> Response:
        return file_response("index.html")

    @router.get("/static/{name:path}", response_model=None)
    async def static(name: str) -> Response:
        return file_response(name)

    return router
