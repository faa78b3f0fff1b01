"""Commands of this machine to a gallery that is being served: a socket in the gallery's folder, for its owner only.

One process has a gallery open at a time. So the verbs of ``holdfast gallery`` hand their command to the process that
serves the gallery, which runs it beside the searches. They name folders of models and files of images, which is why no
token of the HTTP service is enough: whoever may open this socket may write to the gallery's folder anyway.

Lines of JSON: {"command": ..., arguments} one way, {"progress": ...} as often as there is any and then {"result": ...}
or {"error": reason} the other. Whoever hangs up stops the command where it can be stopped; so does the server's end.
"""

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.errors import HoldfastError, unknown_name
from holdfast.gallery import AttachedGallery, Gallery
from holdfast.service.commands import COMMANDS, Tell
from holdfast.service.refusals import LOG

SOCKET = "control.socket"
_LONGEST_LINE = 16 * 1024 * 1024
_LONGEST_ADDRESS = 100  # the system takes 107 bytes, macOS 103


class ControlServer:
    """Listens while it is entered; commands run in threads, and the gallery says which may run side by side."""

    def __init__(self, gallery: Gallery | AttachedGallery, folder: Path, *, changed: Callable[[], None]) -> None:
        self._gallery, self._folder, self._changed = gallery, folder, changed
        self._server: asyncio.Server | None = None
        self._stops: set[threading.Event] = set()
        self._answering: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        (self._folder / SOCKET).unlink(missing_ok=True)  # of a process that was killed: the gallery is ours now
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with _address(self._folder) as address:
                listening.bind(address)
        except OSError as error:
            listening.close()
            raise HoldfastError(f"{self._folder / SOCKET}: cannot listen here ({error.strerror})") from error
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._answer, sock=listening, limit=_LONGEST_LINE)
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        (self._folder / SOCKET).unlink(missing_ok=True)
        for stop in self._stops:  # what can go on another time
            stop.set()
        if self._answering:  # a command that has begun is answered
            await asyncio.wait(self._answering)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):  # they went away, or sent no line
            line = await reader.readline()
            if not line:  # somebody who only looked whether we are here
                writer.close()
                return
            me = asyncio.current_task()
            assert me is not None
            self._answering.add(me)
            me.add_done_callback(self._answering.discard)
            stop = threading.Event()
            self._stops.add(stop)
            left = asyncio.create_task(_when_they_leave(reader, stop))
            try:
                answer = {"result": await self._do(line, stop, _teller(writer))}
            except (HoldfastError, OSError, ValueError, TypeError) as error:
                answer = {"error": str(error)}
            except Exception:  # whoever asked is answered, whatever it was
                LOG.exception("a command failed")
                answer = {"error": "a defect of the service; its log says more"}
            finally:
                left.cancel()
                self._stops.discard(stop)
            writer.write(_line(answer))
            await writer.drain()
        writer.close()

    async def _do(self, line: bytes, stop: threading.Event, tell: Tell) -> Any:
        asked = json.loads(line)
        name = asked.pop("command", "")
        if name not in COMMANDS:
            raise unknown_name("command", str(name), COMMANDS)
        try:
            return await asyncio.to_thread(COMMANDS[name], self._gallery, stop, tell, **asked)
        finally:
            self._changed()


async def _when_they_leave(reader: asyncio.StreamReader, stop: threading.Event) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read()  # nothing more is sent: it ends with the connection
    stop.set()


def _teller(writer: asyncio.StreamWriter) -> Tell:
    loop = asyncio.get_running_loop()

    def tell(progress: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(writer.write, _line({"progress": progress}))

    return tell


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def is_served(folder: Path) -> bool:
    """Whether a process serves the gallery in ``folder`` and takes commands."""
    asking = _connected(folder)
    if asking is None:
        return False
    asking.close()
    return True


def ask_server(folder: Path, command: str, *, tell: Tell = lambda progress: None, **arguments: Any) -> Any:
    """Have the process that serves the gallery in ``folder`` do something; None where no process serves it.

    Commands always give something, so None is no answer. ``tell`` is given the progress that is told on the way.
    """
    asking = _connected(folder)
    if asking is None:
        return None
    with asking:
        asking.sendall(_line({"command": command, **arguments}))
        with asking.makefile("rb") as answers:
            for line in answers:
                if not line.endswith(b"\n"):  # cut off
                    continue
                answer = json.loads(line)
                if "progress" not in answer:
                    break
                tell(answer["progress"])
            else:
                raise HoldfastError(f"{folder}: the process that serves the gallery ended before it answered")
    if "error" in answer:
        raise HoldfastError(answer["error"])
    return answer["result"]


def _connected(folder: Path) -> socket.socket | None:
    if not (folder / SOCKET).exists():
        return None
    asking = socket.socket(socket.AF_UNIX)
    try:
        with _address(folder) as address:
            asking.connect(address)
    except BaseException as error:
        asking.close()
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):  # left by a process that was killed
            return None
        if isinstance(error, PermissionError):
            raise HoldfastError(f"{folder / SOCKET}: only who serves the gallery may give it commands") from None
        raise
    return asking


@contextlib.contextmanager
def _address(folder: Path) -> Iterator[str]:
    """The socket's path, or, where that is longer than a socket's address may be, another way to it (Linux)."""
    path = str(folder / SOCKET)
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield path
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)
