"""One process that serves one gallery until it is told to stop."""

import contextlib
import io
import signal
import socket
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from holdfast.errors import HoldfastError, how_to_install
from holdfast.gallery import AttachedGallery, Gallery, open_gallery
from holdfast.service.access import Access, Scope, check_binding
from holdfast.service.request_bodies import Limits

KEEP_ALIVE_SECONDS = 30
BACKLOG = 1024


def serve(
    folder: Path,
    *,
    host: str,
    port: int,
    tokens: dict[bytes, Scope],
    hosts: Collection[str] = (),
    limits: Limits | None = None,
    device: str = "auto",
    access_log: bool = False,
    started: Callable[[str, Gallery | AttachedGallery], None] = lambda url, gallery: None,
) -> None:
    """Serve the gallery in ``folder`` until SIGTERM or SIGINT; requests that have begun are answered first.

    device: where models embed; "auto" is the GPU if there is one. started: told the address once requests are answered.
    A second SIGINT does not wait for them.
    """
    try:
        import uvicorn

        from holdfast.service.app import build_app
    except ImportError as error:
        raise HoldfastError(f"serving needs {error.name}: {how_to_install('serve')}") from None
    access, limits = Access(tokens, hosts), limits or Limits()
    check_binding(host, access)
    with _opened(folder, device) as gallery, _listening(host, port) as listening:
        _warm(gallery, limits)
        shown = listening.getsockname()
        url = f"http://{f'[{shown[0]}]' if ':' in shown[0] else shown[0]}:{shown[1]}"
        app = build_app(
            gallery,
            access=access,
            limits=limits,
            name=folder.absolute().name,
            control=folder,
            started=lambda: started(url, gallery),
        )
        config = uvicorn.Config(
            app,
            lifespan="on",
            ws="none",
            server_header=False,
            proxy_headers=False,  # nothing here depends on who asks: no header of a proxy needs to be believed
            access_log=access_log,
            log_level="info" if access_log else "warning",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(limits.seconds) + 5,
        )
        # uvicorn stops by these signals and then raises them once more, to end the process by them: it ends by itself.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: None)
        server = uvicorn.Server(config)
        server.run(sockets=[listening])
        if not server.started:
            raise HoldfastError(f"{folder}: the service did not start; the lines above say why")


@contextlib.contextmanager
def _opened(folder: Path, device: str) -> Iterator[Gallery | AttachedGallery]:
    with open_gallery(folder, device=device) as gallery, contextlib.ExitStack() as held:
        if isinstance(gallery, AttachedGallery):
            held.enter_context(gallery.alone())
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


def _warm(gallery: Gallery | AttachedGallery, limits: Limits) -> None:
    """Load the newest model now rather than at the first request, and see that it works."""
    from PIL import Image

    from holdfast.service.work import ImageEmbedder

    embedder = ImageEmbedder(gallery)
    if embedder.takes_images():
        picture = io.BytesIO()
        Image.linear_gradient("L").save(picture, "PNG")
        embedder.embed([embedder.open(picture.getvalue(), max_pixels=limits.pixels)])
