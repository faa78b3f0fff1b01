"""Bytes that the tests send to the service, a reader of its metrics, and a server in a thread."""

import contextlib
import io
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

ADDRESS = "http://127.0.0.1"


def png(picture: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG of zeros with one bit a pixel: 100 megapixels in some 12 kB."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([1, 0, 0, 0, 0])
    packed = zlib.compress(bytes((width // 8 + 1) * height), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def metric_values(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Samples in the Prometheus text format, by name and label values in the order of the labels' names."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@contextlib.contextmanager
def serving(gallery: Any, access: Any, limits: Any = None) -> Iterator[Any]:
    """A client of a gallery that is open in this process and served on a port, as ``holdfast serve`` does it."""
    import httpx

    from holdfast.gallery.folder import GalleryFolder
    from holdfast.service.body_limits import Limits
    from holdfast.service.server import gallery_server

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = gallery_server(gallery, listening, access=access, limits=limits or Limits())
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not GalleryFolder(gallery.folder).served.exists():
                assert thread.is_alive()
                time.sleep(0.01)
            with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()
