"""The application: endpoints around one open gallery."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

from holdfast.environment import version
from holdfast.errors import HoldfastError
from holdfast.gallery import AttachedGallery, Gallery
from holdfast.service.access import Access
from holdfast.service.errors import LOG, handle_errors
from holdfast.service.gate import Gate
from holdfast.service.local_commands import ControlServer
from holdfast.service.metrics import Metrics
from holdfast.service.request_bodies import Limits
from holdfast.service.routes_items import item_routes
from holdfast.service.routes_search import search_routes
from holdfast.service.routes_state import page_routes, state_routes
from holdfast.service.schema import REFUSALS, describe
from holdfast.service.work import Work


def build_app(
    gallery: Gallery | AttachedGallery,
    *,
    access: Access,
    limits: Limits | None = None,
    name: str = "gallery",
    control: Path | None = None,
    started: Callable[[], None] = lambda: None,
) -> Gate:
    """An ASGI application; it closes its threads when it ends, the gallery stays its owner's.

    name: shown to clients. control: the gallery's folder, where a served gallery listens to this machine's commands.
    started: told once everything is up.
    """
    limits = limits or Limits()
    metrics, work = Metrics(), Work(gallery, limits, name=name)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(work.close)
            if control is not None:
                try:
                    await stack.enter_async_context(ControlServer(gallery, control, changed=work.forget_stats))
                except HoldfastError as error:  # a file system without sockets: the rest works
                    LOG.warning("%s; commands for this gallery need the service to be stopped", error)
            started()
            yield

    app = FastAPI(
        title="Holdfast gallery",
        version=version("holdfast") or "0",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # the usual pages load their scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        responses=REFUSALS,
    )
    handle_errors(app)
    for router in (
        search_routes(work, access, limits),
        item_routes(work, access, limits),
        state_routes(work, access, limits, metrics),
        page_routes(),
    ):
        app.include_router(router)
    describe(app)
    return Gate(app, access, limits, metrics)
