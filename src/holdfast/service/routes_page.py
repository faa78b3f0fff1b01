"""The web page: plain files that come with the package, under names that are known beforehand."""

from pathlib import Path

from fastapi import APIRouter, Response

from holdfast.service.refusals import RefusedError

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
