"""The ASGI application: the endpoints of one open gallery."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI

from holdfast.environment import DISTRIBUTION, version
from holdfast.errors import HoldfastError
from holdfast.gallery import OpenGallery
from holdfast.service.access_control import AccessControl
from holdfast.service.errors import install_error_handlers
from holdfast.service.gallery_jobs import GalleryJobs
from holdfast.service.local_socket import LocalSocket
from holdfast.service.log import LOG
from holdfast.service.metrics import Metrics
from holdfast.service.middleware import RequestMiddleware
from holdfast.service.request_bodies import Limits
from holdfast.service.routes_admin import RunningTasks, admin_routes
from holdfast.service.routes_items import item_routes
from holdfast.service.routes_search import direct_searches, search_routes
from holdfast.service.routes_state import page_routes, state_routes
from holdfast.service.schema import ERROR_RESPONSES, complete_openapi


def build_app(
    gallery: OpenGallery,
    *,
    access: AccessControl,
    limits: Limits | None = None,
    name: str = "gallery",
    socket_folder: Path | None = None,
    on_started: Callable[[], None] = lambda: None,
) -> RequestMiddleware:
    """An ASGI application for an open gallery. It ends its threads at shutdown but does not close the gallery.

    access: who may send requests.
    limits: of requests; the defaults of ``Limits`` if None.
    name: the gallery's name as clients see it.
    socket_folder: the gallery's folder, to offer the admin routes on a socket in it; None: do not offer them.
    on_started: called when requests are about to be answered.
    """
    limits = limits or Limits()
    metrics, jobs = Metrics(), GalleryJobs(gallery, limits, name=name)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(jobs.close)
            starting = asyncio.create_task(jobs.workers.start())  # beside the first requests
            if socket_folder is not None:
                try:
                    await stack.enter_async_context(_local_socket(jobs, metrics, socket_folder))
                except HoldfastError as error:  # a file system without sockets: everything else works
                    LOG.warning("%s; stop the service before you run commands on this gallery", error)
            on_started()
            yield
            await starting

    routers = (
        search_routes(jobs, access),
        item_routes(jobs, access),
        state_routes(jobs, access, metrics),
        page_routes(),
    )
    direct = direct_searches(jobs, access)
    return RequestMiddleware(_application(routers, lifespan), access, limits, metrics, direct, gallery.folder)


def _local_socket(jobs: GalleryJobs, metrics: Metrics, folder: Path) -> LocalSocket:
    """The same application on the socket in the gallery's folder: no tokens, and with the admin routes."""
    access, running = AccessControl({}), RunningTasks()
    routers = (
        search_routes(jobs, access),
        item_routes(jobs, access),
        state_routes(jobs, access, metrics),
        admin_routes(jobs, running),
    )
    # Counted by itself: the owner's requests are answered whatever the load is.
    direct = direct_searches(jobs, access)
    app = RequestMiddleware(_application(routers), access, jobs.limits, Metrics(), direct)
    return LocalSocket(app, folder, running)


def _application(routers: Sequence[APIRouter], lifespan: Any = None) -> FastAPI:
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
    for router in routers:
        app.include_router(router)
    complete_openapi(app)
    return app
