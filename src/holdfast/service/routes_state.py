"""Endpoints that say how things stand: the gallery, its versions, health, readiness, metrics.

The versions of a gallery as clients see them: shares of the items, and who was found compatible with whom.

The web page: plain files that come with the package, under names that are known beforehand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

from fastapi import APIRouter, Request, Response

from holdfast.gallery import Version
from holdfast.service.access import Access
from holdfast.service.errors import RefusedError
from holdfast.service.metrics import Metrics
from holdfast.service.request_bodies import Limits
from holdfast.service.schema import PUBLIC
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


UNKNOWN = "not checked: when it was registered, that version held no items with labels and images that could be read"


def versions_json(versions: Sequence[Version], newest: int, stats: Mapping[str, Any]) -> dict[str, Any]:
    """Oldest first. newest: embeds what is asked; not the last one while that is being rolled back.

    share: of all items, None in an empty gallery; while a backfill runs, that of its target grows.
    matrix: one cell for each pair of a version and an older one, "queries of ``query`` on items of ``items``", with the
    verdict that ``check`` gave when ``query`` was registered, or None and the reason where nothing is known.
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
        }
        for one in versions
    ]
    cells = [_cell(new, old) for new in versions for old in versions if old.number < new.number]
    return {"items": total, "versions": rows, "matrix": cells}


def _cell(new: Version, old: Version) -> dict[str, Any]:
    pair = {"query": new.number, "items": old.number}
    for check in new.checks:
        if check["version"] == old.number:
            return {**pair, **{name: value for name, value in check.items() if name != "version"}}
    return {**pair, "verdict": None, "reason": UNKNOWN}


PAGE = Path(__file__).parent / "page"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
_INDEX = "index.html"


def page_routes(folder: Path = PAGE) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    # Looked up, never joined: a name from outside is a key in here or nothing.
    files = {file.name: file for file in folder.iterdir() if file.suffix in _KINDS}

    def answer(name: str) -> Response:
        if name not in files:
            raise RefusedError(404, "no such file")
        kind = _KINDS[files[name].suffix]
        return Response(files[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})

    @router.get("/", response_model=None)
    async def index() -> Response:
        return answer(_INDEX)

    @router.get("/static/{name:path}", response_model=None)
    async def static(name: str) -> Response:
        return answer(name)

    return router
