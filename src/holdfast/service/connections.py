"""Connections of the HTTP server: how many there may be, and how long the head of a request may take to arrive.

uvicorn has no limit for either: connections that send nothing would use up the file descriptors of the process.
"""

import asyncio
import contextlib
import functools
import os
import resource
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.service.body_limits import Limits
from holdfast.service.error_answers import error_response

LONGEST_HEAD = 64 * 1024
"""Bytes of a request before its body."""
_SECONDS_TO_REFUSE = 1.0  # a connection over the limit is kept so long, to answer its request
_SECONDS_TO_CLOSE = 5.0
_WANTED_FILES = 4096
_OTHER_FILES = 128  # for the gallery, its models and worker processes, beside those that are open at the start


def limited_connections(limits: Limits) -> Callable[..., asyncio.Protocol]:
    """The ``http`` argument of ``uvicorn.Config``."""
    return functools.partial(LimitedConnection, most=most_connections(limits.connections), seconds=limits.head_seconds)


def most_connections(wanted: int) -> int:
    """How many connections the process can have open, at most ``wanted``. Raises a low limit on open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _WANTED_FILES:
        soft = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    used = 64
    with contextlib.suppress(OSError):
        used = len(os.listdir("/dev/fd"))
    return max(1, min(wanted, soft - used - _OTHER_FILES, soft // 2))


class LimitedConnection(HttpToolsProtocol):
    """A connection of uvicorn that is refused if there are too many, and closed if no request arrives.

    most: connections at once; a request on a further one gets 503.
    seconds: time for the head of a request to arrive.
    """

    def __init__(self, *arguments: Any, most: int, seconds: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._most, self._seconds = most, seconds
        self._timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_body = self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._refused = len(self.connections) > self._most
        if len(self.connections) > 2 * self._most:  # requests on refused connections are not waited for any more
            self._refuse()
        else:
            self._start_timer(_SECONDS_TO_REFUSE if self._refused else self._seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._refused:
            self._refuse()
            return
        super().data_received(data)
        if self.transport.is_closing() or not self._answered:
            return
        if self._timer is None:  # the next request, or the rest of one that has its answer already
            self._start_timer(self._seconds)
        if not self._in_body:
            self._head_bytes += len(data)
            if self._head_bytes > LONGEST_HEAD:
                self._close_with(431, f"the head of the request is longer than {LONGEST_HEAD} bytes")

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._head_bytes, self._in_body = 0, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._in_body = False
        super().on_message_complete()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_later()

    @property
    def _answered(self) -> bool:
        """Whether every request that has begun on this connection has its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._head_is_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._refused:
            self._refuse()
        elif self._head_bytes:
            self._close_with(408, f"the head of the request did not arrive within {self._seconds:g} s")
        else:
            self.transport.close()

    def _refuse(self) -> None:
        self._close_with(503, "too many connections; try again", {"Retry-After": "1"})

    def _close_with(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        answer = error_response(status, reason, {**(headers or {}), "Connection": "close"})
        head = [f"HTTP/1.1 {status} ".encode()]
        head += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*head, b"", bytes(answer.body)]))
        self._stop_timer()
        self.transport.close()
        self._abort_later()

    def _abort_later(self) -> None:
        """Closing waits until the client has read the answer; do not wait for long."""
        self.loop.call_later(_SECONDS_TO_CLOSE, self.transport.abort)
