"""Connections to a PostgreSQL server that outlive its restarts: one that writes, some that read.

The one that writes holds a lock of the gallery's on the server. A process that was killed may leave a write under way
there; the lock goes when that has ended, so that whoever opens the gallery next sees all of it or nothing, and a copy
of the gallery's folder cannot be written to at the same time.
"""

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, UnavailableError, how_to_install
from holdfast.gallery.postgres_values import speak_vectors

CONNECT_SECONDS, RECONNECT_SECONDS, LOCK_SECONDS = 10, 20, 20
READ_SECONDS, WRITE_SECONDS = 60, 300
MOST_READERS = 16
_DEFAULTS = {
    "application_name": "holdfast",
    "connect_timeout": CONNECT_SECONDS,
    # A server that is gone without a word is noticed after a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
# Only where the server, the role or the address have not set one.
_TIMEOUT = "SELECT set_config('statement_timeout', %s, false) WHERE current_setting('statement_timeout') = '0'"
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"

T = TypeVar("T")
Work = Callable[[Any], T]


class Sessions:
    """Runs pieces of work, each with a connection; one whose connection is lost is done once more on a new one.

    So work must be such that doing it twice is doing it once. settings: for the connections that read.
    """

    def __init__(self, url: str, namespace: str, settings: dict[str, str]) -> None:
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        except ImportError:
            raise HoldfastError(f"a gallery on PostgreSQL needs psycopg: {how_to_install('postgres')}") from None
        self._psycopg: Any = psycopg
        try:
            self._parameters = {**_DEFAULTS, **conninfo_to_dict(url)}
        except psycopg.Error as error:
            raise HoldfastError(f"{url}: {_first_line(error)}") from error
        self.url = url
        self._settings = settings
        digest = hashlib.sha256(f"holdfast gallery {namespace}".encode()).digest()
        self._lock_number = int.from_bytes(digest[:8], "big", signed=True)
        self._readers = threading.BoundedSemaphore(MOST_READERS)
        self._idle: list[Any] = []
        self._writing = threading.RLock()
        self._writer = self._writer_connection()

    def read(self, work: Work[T]) -> T:
        with self._readers:
            while self._idle:
                try:
                    connection = self._idle.pop()
                except IndexError:  # another thread was faster
                    break
                if not connection.closed:
                    return self._done(work, connection, self._reader_connection, self._idle.append)
            fresh = self._patiently(self._reader_connection)
            return self._done(work, fresh, self._reader_connection, self._idle.append)

    def write(self, work: Work[T]) -> T:
        with self._writing:
            if self._writer.closed:
                self._keep_writer(self._patiently(self._writer_connection))
            return self._done(work, self._writer, self._writer_connection, self._keep_writer)

    def close(self) -> None:
        for connection in [self._writer, *self._idle]:
            connection.close()
        self._idle.clear()

    def _done(self, work: Work[T], connection: Any, connect: Callable[[], Any], keep: Callable[[Any], None]) -> T:
        try:
            try:
                found = work(connection)
            except self._psycopg.Error:
                if not connection.closed:
                    raise
                self._forget_idle()  # they ended with the server that this one was lost to
                connection = self._patiently(connect)
                found = work(connection)
        except self._psycopg.Error as error:
            if not connection.closed:
                keep(connection)
            # A value that the server cannot take is the caller's; all else is the server's or the way to it.
            kind = HoldfastError if isinstance(error, self._psycopg.DataError) else UnavailableError
            raise kind(f"{self.url}: {_first_line(error)}") from error
        except BaseException:
            connection.close()  # stopped half-way: nobody knows what it would answer next
            raise
        keep(connection)
        return found

    def _patiently(self, connect: Callable[[], Any]) -> Any:
        """A server that restarts refuses connections for a while."""
        deadline = time.monotonic() + RECONNECT_SECONDS
        while True:
            try:
                return connect()
            except HoldfastError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def _reader_connection(self) -> Any:
        def prepare(connection: Any) -> None:
            for name, value in self._settings.items():
                connection.execute("SELECT set_config(%s, %s, false)", (name, value))

        return self._connected(READ_SECONDS, prepare)

    def _writer_connection(self) -> Any:
        def prepare(connection: Any) -> None:
            connection.execute(_DURABLE)
            # Not every server, nor every server's system, can tell that a client is gone.
            with contextlib.suppress(self._psycopg.DataError, self._psycopg.ProgrammingError):
                connection.execute("SET client_connection_check_interval = '1s'")
            deadline = time.monotonic() + LOCK_SECONDS
            while not connection.execute("SELECT pg_try_advisory_lock(%s)", (self._lock_number,)).fetchone()[0]:
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"{self.url}: the gallery's vectors are open elsewhere; close them there first"
                    )
                time.sleep(0.05)

        return self._connected(WRITE_SECONDS, prepare)

    def _connected(self, seconds: int, prepare: Callable[[Any], None]) -> Any:
        connection = None
        try:
            connection = self._psycopg.connect(**self._parameters, autocommit=True)
            speak_vectors(connection)
            connection.execute(_TIMEOUT, (f"{seconds}s",))
            prepare(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, self._psycopg.Error):
                raise UnavailableError(f"{self.url}: {_first_line(error)}") from error
            raise
        return connection

    def _keep_writer(self, connection: Any) -> None:
        self._writer = connection

    def _forget_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
