"""The service's application on a socket in the gallery's folder, which only the user who runs the server can open."""

import asyncio
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from holdfast.errors import HoldfastError
from holdfast.service.routes_admin import RunningTasks
from holdfast.service.served_gallery import SOCKET, socket_address


class LocalSocket:
    """Serves an application on the socket while its context is entered.

    app: with the admin routes.
    folder: the gallery's folder, which this process has locked.
    running: the tasks of the admin routes; they are stopped and answered at the end.
    """

    def __init__(self, app: ASGIApp, folder: Path, running: RunningTasks) -> None:
        self._app, self._folder, self._running = app, folder, running
        self._server: asyncio.AbstractServer | None = None
        self._state = ServerState()

    async def __aenter__(self) -> Self:
        # A socket that is there was left by a process that was killed: this process has the gallery's lock.
        (self._folder / SOCKET).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with socket_address(self._folder) as address:
                listening.bind(address)
        except OSError as error:
            listening.close()
            raise HoldfastError(f"{self._folder / SOCKET}: cannot listen here ({error.strerror})") from error
        finally:
            os.umask(before)
        # Logging stays as the server or the caller has set it up.
        config = uvicorn.Config(self._app, lifespan="off", ws="none", proxy_headers=False, log_config=None)
        config.load()
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: HttpToolsProtocol(config=config, server_state=self._state, app_state={}), sock=listening
        )
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        (self._folder / SOCKET).unlink(missing_ok=True)
        await self._running.stop()
        if self._state.tasks:  # every request that has begun is answered
            await asyncio.wait(self._state.tasks, timeout=5)
        for connection in list(self._state.connections):
            connection.transport.close()
