"""The server process: opens one gallery and serves it until a signal ends it."""

import contextlib
import math
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.core.errors import HoldfastError, how_to_install
from holdfast.gallery import AttachedGallery, OpenGallery, open_gallery
from holdfast.service.access_control import AccessControl, check_bind_address
from holdfast.service.body_limits import Limits

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
    access_log: bool = False,
    on_started: Callable[[str, OpenGallery], None] = lambda url, gallery: None,
) -> None:
    """Serve a gallery until SIGTERM or SIGINT. Requests that have begun are answered first, except at a second SIGINT.

    folder: the gallery's folder.
    host: address to listen at; without tokens it must be of this machine.
    port: 0 for any free port.
    access: who may send requests.
    limits: of requests; the defaults of ``Limits`` if None.
    device: where models embed; "auto" is the GPU if there is one.
    access_log: log every request to stderr.
    on_started: called with the URL and the gallery when requests are about to be answered.
    """
    try:
        import uvicorn

        from holdfast.service.app import build_app
        from holdfast.service.connections import limited_connections
    except ImportError as error:
        raise HoldfastError(f"serving needs {error.name}: {how_to_install('serve')}") from None
    limits = limits or Limits()
    check_bind_address(host, access)
    with _opened(folder, device) as gallery, _listening(host, port) as listening:
        _load_model(gallery, limits)
        address = listening.getsockname()
        url = f"http://{f'[{address[0]}]' if ':' in address[0] else address[0]}:{address[1]}"
        app = build_app(
            gallery,
            access=access,
            limits=limits,
            name=folder.absolute().name,
            socket_folder=folder,
            on_started=lambda: on_started(url, gallery),
        )
        config = uvicorn.Config(
            app,
            http=limited_connections(limits),  # type: ignore[arg-type]
            lifespan="on",
            ws="none",
            server_header=False,
            proxy_headers=False,  # the service does not use the client's address
            access_log=access_log,
            log_level="info" if access_log else "warning",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(limits.seconds) + 5,
        )
        # After its shutdown uvicorn raises these signals again to end the process. This process ends by itself.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: None)
        server = uvicorn.Server(config)
        server.run(sockets=[listening])
        if not server.started:
            raise HoldfastError(f"{folder}: the service did not start; see the lines above")


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
