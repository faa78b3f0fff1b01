"""Commands of this machine to a gallery that is being served: a socket in the gallery's folder, for its owner only.

One process has a gallery open at a time. So ``holdfast gallery register`` hands its command to the process that serves
the gallery, which runs it beside the searches. It names a folder of models, which is why no token of the HTTP service
is enough for it: whoever may open this socket may write to the gallery's folder anyway.

One line of JSON each way: {"command": ..., arguments} and {"result": ...} or {"error": reason}.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.errors import HoldfastError, unknown_name
from holdfast.gallery import Gallery

SOCKET = "control.socket"
_LONGEST_LINE = 64 * 1024
_LONGEST_ADDRESS = 100  # the system takes 107 bytes, macOS 103


def _register(gallery: Gallery, *, model: str, force: bool = False) -> dict[str, Any]:
    return gallery.register(Path(model), force=force).as_json()


COMMANDS: dict[str, Callable[..., Any]] = {"register": _register}
"""By name: a function of the gallery and keyword arguments that gives JSON."""


class ControlServer:
    """Listens while it is entered; commands run one after the other, in threads."""

    def __init__(self, gallery: Gallery, folder: Path, *, changed: Callable[[], None]) -> None:
        self._gallery, self._folder, self._changed = gallery, folder, changed
        self._server: asyncio.Server | None = None
        self._busy = asyncio.Lock()
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
        if self._answering:  # a command that has begun is carried out and answered
            await asyncio.wait(self._answering)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):  # they went away, or sent no line
            line = await reader.readline()
            me = asyncio.current_task()
            assert me is not None
            self._answering.add(me)
            me.add_done_callback(self._answering.discard)
            try:
                answer = {"result": await self._do(line)}
            except (HoldfastError, OSError, ValueError, TypeError) as error:
                answer = {"error": str(error)}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _do(self, line: bytes) -> Any:
        asked = json.loads(line)
        name = asked.pop("command", "")
        if name not in COMMANDS:
            raise unknown_name("command", str(name), COMMANDS)
        async with self._busy:
            result = await asyncio.to_thread(COMMANDS[name], self._gallery, **asked)
        self._changed()
        return result


def ask_server(folder: Path, command: str, **arguments: Any) -> Any:
    """Have the process that serves the gallery in ``folder`` do something; None where no process serves it.

    Commands always give something, so None is no answer.
    """
    if not (folder / SOCKET).exists():
        return None
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            with _address(folder) as address:
                asking.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):  # left by a process that was killed
            return None
        asking.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
        with asking.makefile("rb") as answers:
            line = answers.readline()
    if not line:
        raise HoldfastError(f"{folder}: the process that serves the gallery ended before it answered")
    answer = json.loads(line)
    if "error" in answer:
        raise HoldfastError(answer["error"])
    return answer["result"]


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
