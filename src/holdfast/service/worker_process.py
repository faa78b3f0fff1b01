"""A process that parses and decodes what clients send, within limits of memory and time.

The service runs this file as a process of its own (``worker_pool``) for images and for large bodies. A client can make
either of them take seconds and gigabytes, and the threads of the service would wait meanwhile. Here the system ends the
process instead.

Messages on stdin and stdout are a length (4 bytes, big-endian), JSON of that length, then ``size`` further bytes. The
process sends one message when it is ready, and one for each task:

    {"task": "body", "model": name, "batch": n, "size": n}            -> the checked body (``checked_body``)
    {"task": "image", "colour", "height_width", ..., "size": n}       -> uint8 pixels, H x W x C
    {"task": "thumbnail", "path", "side", "max_pixels", "size": 0}    -> a JPEG

Every task also has ``memory`` (bytes) and ``seconds`` (of processor time). An answer has ``status`` and ``reason`` if
the task was refused.
"""

import contextlib
import io
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.embedders.pixels import SENT_FORMATS, decode_with_one_thread, open_image, resize_and_crop
from holdfast.service.json_bodies import BODIES, checked_body
from holdfast.service.refusals import RequestError

LONGEST_HEADER = 2**16


def write_message(stream: IO[bytes], header: dict[str, Any], body: bytes = b"") -> None:
    """Write one message and flush it."""
    text = json.dumps({**header, "size": len(body)}).encode()
    stream.write(len(text).to_bytes(4, "big") + text)
    stream.write(body)
    stream.flush()


def read_message(stream: IO[bytes], largest: int) -> tuple[dict[str, Any], bytes] | None:
    """The next message; None at the end of the stream.

    largest: bytes of the body; a message with more is refused with ``ValueError``.
    """
    start = stream.read(4)
    if len(start) < 4:
        return None
    length = int.from_bytes(start, "big")
    if length > LONGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    text = stream.read(length)
    if len(text) < length:
        return None
    header = json.loads(text)
    size = header["size"]
    if not isinstance(size, int) or not 0 <= size <= largest:
        raise ValueError(f"a body of {size} bytes")
    body = stream.read(size)
    return None if len(body) < size else (header, body)


def _run(task: dict[str, Any], body: bytes) -> bytes:
    if task["task"] == "body":
        return checked_body(BODIES[task["model"]], body, task["batch"])
    if task["task"] == "image":
        image = open_image(body, colour=task["colour"], max_pixels=task["max_pixels"], formats=SENT_FORMATS)
        size = tuple(task["height_width"])
        image = resize_and_crop(image, size, resize=task["resize"], interpolation=task["interpolation"])
        return np.asarray(image).tobytes()
    image = open_image(Path(task["path"]), max_pixels=task["max_pixels"])
    image.thumbnail((task["side"], task["side"]))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)  # encoded anew: metadata of the file is not copied
    return file.getvalue()


def _answer(task: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        return {}, _run(task, body)
    except RequestError as error:
        return {"status": error.status, "reason": error.reason}, b""
    except HoldfastError as error:
        if isinstance(error.__cause__, MemoryError):
            return {"status": 422, "reason": TOO_MUCH_MEMORY}, b""
        return {"status": 422, "reason": str(error)}, b""
    except MemoryError:
        return {"status": 422, "reason": TOO_MUCH_MEMORY}, b""


TOO_MUCH_MEMORY = "it takes more memory than one request may use"


def _used_address_space() -> int | None:
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    return None  # not Linux: other systems do not limit it


@contextlib.contextmanager
def _limited(memory: int, seconds: float) -> Iterator[None]:
    """Within the block the system refuses more memory, and ends the process after some processor time."""
    before, (_, most) = _used_address_space(), resource.getrlimit(resource.RLIMIT_AS)
    if before is not None:
        resource.setrlimit(resource.RLIMIT_AS, (before + memory, most))
    signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends the process, also within a decoder
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches this process, too
    os.chdir("/")  # the folder that the service was started in may be removed; paths are absolute
    decode_with_one_thread()
    source, target = sys.stdin.buffer, sys.stdout.buffer
    write_message(target, {"ready": True})
    while (message := read_message(source, 2**40)) is not None:
        task, body = message
        with _limited(task["memory"], task["seconds"]):
            header, result = _answer(task, body)
        del body, message
        write_message(target, header, result)
        del result


if __name__ == "__main__":
    main()
