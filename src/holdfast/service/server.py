"""The server process: opens one gallery and serves it until a signal ends it."""

import contextlib
import math
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError, how_to_install
from holdfast.gallery import AttachedGallery, OpenGallery, open_gallery
from holdfast.gallery.folder import GalleryFolder
from holdfast.service.access_control import AccessControl, check_bind_address
from holdfast.service.body_limits import Limits
from holdfast.service.refusals import LOG
from holdfast.service.served_gallery import ServerRecord

if TYPE_CHECKING:
    import uvicorn

KEEP_ALIVE_SECONDS = 30
BACKLOG = 1024


def serve(
    folder: Path,
    *,
    host: str,
    port: int,
    access: AccessControl,
    limits: Limits | None = None,
    device: str = "auto",
    on_started: Callable[[str, OpenGallery], None] = lambda url, gallery: None,
) -> None:
    """Serve a gallery until SIGTERM or SIGINT. Requests that have begun are answered first, except at a second SIGINT.

    folder: the gallery's folder.
    host: address to listen at; without tokens it must be of this machine.
    port: 0 for any free port.
    access: who may send requests.
    limits: of requests; the defaults of ``Limits`` if None.
    device: where models embed; "auto" is the GPU if there is one.
    on_started: called with the URL and the gallery when requests are about to be answered.
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise HoldfastError(f"serving needs {error.name}: {how_to_install('serve')}") from None
    limits = limits or Limits()
    check_bind_address(host, access)
    with _opened(folder, device) as gallery, _listening(host, port) as listening:
        _load_model(gallery, limits)
        server = gallery_server(gallery, listening, access=access, limits=limits, on_started=on_started)
        # After its shutdown uvicorn raises these signals again to end the process. This process ends by itself.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: None)
        server.run(sockets=[listening])
        if not server.started:
            raise HoldfastError(f"{folder}: the service did not start; see the lines above")


def gallery_server(
    gallery: OpenGallery,
    listening: socket.socket,
    *,
    access: AccessControl,
    limits: Limits,
    on_started: Callable[[str, OpenGallery], None] = lambda url, gallery: None,
) -> "uvicorn.Server":
    """A server of an open gallery; while it runs, the gallery's folder says where, and how its owner can use it."""
    import uvicorn

    from holdfast.service.app import build_app
    from holdfast.service.connections import limited_connections
    from holdfast.service.owner_tasks import OwnerTasks

    owner, home = OwnerTasks(), GalleryFolder(gallery.folder)
    address, port = listening.getsockname()[:2]

    def url(host: str) -> str:
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    record = ServerRecord(url({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)), owner.token)

    def started() -> None:
        try:
            record.write(gallery.folder)
        except OSError as error:
            LOG.warning("%s; stop the service before you run commands on this gallery", error)
        on_started(url(address), gallery)

    class GalleryServer(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            home.served.unlink(missing_ok=True)
            owner.stop()
            await super().shutdown(sockets)

    app = build_app(
        gallery,
        access=access,
        limits=limits,
        name=gallery.folder.absolute().name,
        owner=owner,
        on_started=started,
    )
    return GalleryServer(
        uvicorn.Config(
            app,
            http=limited_connections(limits),  # type: ignore[arg-type]
            lifespan="on",
            ws="none",
            server_header=False,
            proxy_headers=False,  # the service does not use the client's address
            access_log=False,
            log_level="warning",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(limits.seconds) + 5,
        )
    )


@contextlib.contextmanager
def _opened(folder: Path, device: str) -> Iterator[OpenGallery]:
    with open_gallery(folder, device=device) as gallery, contextlib.ExitStack() as locks:
        if isinstance(gallery, AttachedGallery):
            locks.enter_context(gallery.alone())
        yield gallery


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise HoldfastError(f"cannot listen at {host}, port {port}: {error}") from None
    with listening:
        yield listening


def _load_model(gallery: OpenGallery, limits: Limits) -> None:
    """Load the newest model before the first request, and embed one image to see that it works."""
    from holdfast.service.gallery_jobs import DecodedImage, ImageEmbedder

    embedder = ImageEmbedder(gallery)
    if embedder.takes_images():
        version, encoder, _ = embedder.decoding_task(limits.pixels)
        grey = bytes([128]) * math.prod(encoder.input.array_shape)
        embedder.embed([DecodedImage(version, encoder, grey)])
