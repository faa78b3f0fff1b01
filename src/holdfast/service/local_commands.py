"""Commands on a gallery that another process of this machine serves, over a socket in the gallery's folder.

Only one process can have a gallery open. The verbs of ``holdfast gallery`` therefore send their command to the process
that serves the gallery, which runs it beside the searches. Commands name model folders and image files, so a token of
the HTTP service does not allow them. Only the user who runs the server can open the socket.

Messages are lines of JSON. The client sends {"command": name, arguments}. The server sends {"progress": ...} any number
of times, then {"result": ...} or {"error": reason}. A command that can be resumed is stopped when the client closes the
connection or the server ends.
"""

import asyncio
import contextlib
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from holdfast.errors import HoldfastError, unknown_name
from holdfast.gallery import Gallery, Hit, Item, OpenGallery, SearchableGallery, Version, open_gallery, writable
from holdfast.gallery.backfill import Backfill
from holdfast.gallery.protocol import AUTO, MOST_PAIRS, RegisterProgress, VectorSource
from holdfast.gallery.versions import VectorSizes
from holdfast.service.log import INTERNAL_ERROR, LOG

SOCKET = "control.socket"
_LONGEST_LINE = 16 * 1024 * 1024
_LONGEST_ADDRESS = 100  # Linux takes 107 bytes, macOS 103
_IMAGES_PER_LINE, _VECTORS_PER_LINE, _IDS_PER_LINE = 32, 256, 256
_NUMBERS_PER_LINE = 2**18  # about 6 MiB of JSON

OnProgress = Callable[[dict[str, Any]], None]


def _register(
    gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress, *, model: str, **options: Any
) -> Any:
    def progress(stage: str, done: int, total: int) -> None:
        on_progress({"stage": stage, "done": done, "total": total})

    return gallery.register(Path(model), progress=progress, **options).as_json()


def _backfill(gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress, **options: Any) -> Any:
    def progress(state: Backfill) -> None:
        on_progress({**state.progress.figures(), "share": state.share})

    return _managed(gallery).backfill(stop=stop, progress=progress, **options).as_json()


def _rollback(gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress, **options: Any) -> Any:
    return _managed(gallery).rollback(stop=stop, progress=lambda state: on_progress(state.figures()), **options)


def _move(gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress, **options: Any) -> Any:
    copied, started = 0, time.monotonic()

    def progress(more: int) -> None:
        nonlocal copied
        copied += more
        on_progress({"copied": copied, "rate": copied / max(time.monotonic() - started, 1e-9)})

    managed = _managed(gallery)
    before = managed.stats()["engine"]
    found = managed.move(stop=stop, progress=progress, **options)
    return {"from": before, "copied": copied, **found}


def _add(
    gallery: OpenGallery,
    stop: threading.Event,
    on_progress: OnProgress,
    *,
    items: list[dict[str, Any]],
    version: int | None = None,
) -> Any:
    refused: list[dict[str, str]] = []
    replaced: list[int] = []

    def on_refused(item: Item, error: HoldfastError) -> None:
        refused.append({"id": item.id, "reason": str(error)})

    given = (Item(**one) for one in items)
    added = writable(gallery).add(given, version=version, refused=on_refused, replaced=replaced.append)
    return {"added": added, "replaced": sum(replaced), "refused": refused}


def _search(gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress, **arguments: Any) -> Any:
    return [hit.as_json() for hit in gallery.search(**arguments)]


def _delete(gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress, *, ids: list[str]) -> Any:
    return writable(gallery).delete(ids)


def _versions(gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress) -> Any:
    return [one.as_json() for one in gallery.versions()]


def _vector_sizes(gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress, *, version: int) -> Any:
    return asdict(writable(gallery).vector_sizes(version))


def _stats(gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress) -> Any:
    return gallery.stats()


def _managed(gallery: OpenGallery) -> Gallery:
    """The gallery, if it keeps its own vectors; refused if it is attached."""
    writable(gallery)
    assert isinstance(gallery, Gallery)
    return gallery


COMMANDS: dict[str, Callable[..., Any]] = {
    "register": _register,
    "backfill": _backfill,
    "rollback": _rollback,
    "move": _move,
    "add": _add,
    "search": _search,
    "delete": _delete,
    "versions": _versions,
    "vectors_taken": _vector_sizes,
    "stats": _stats,
}
"""By name. Arguments: the gallery, an event that stops the command, a callback for progress, then the command's own."""


class CommandServer:
    """Takes commands while its context is entered. Commands run in threads; the gallery's locks separate them.

    gallery: open in this process.
    folder: the gallery's folder, for the socket.
    on_change: called after every command.
    """

    def __init__(self, gallery: OpenGallery, folder: Path, *, on_change: Callable[[], None]) -> None:
        self._gallery, self._folder, self._on_change = gallery, folder, on_change
        self._server: asyncio.Server | None = None
        self._stops: set[threading.Event] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        # A socket that is there was left by a process that was killed: this process has the gallery's lock.
        (self._folder / SOCKET).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with _socket_address(self._folder) as address:
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
        for stop in self._stops:
            stop.set()
        if self._tasks:  # every command that has begun is answered
            await asyncio.wait(self._tasks)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):  # the client left, or the line was too long
            line = await reader.readline()
            if not line:  # from ``is_served``
                writer.close()
                return
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            stop = threading.Event()
            self._stops.add(stop)
            watcher = asyncio.create_task(_stop_when_closed(reader, stop))
            try:
                answer = {"result": await self._run(line, stop, _progress_writer(writer))}
            except (HoldfastError, OSError, ValueError, TypeError) as error:
                answer = {"error": str(error)}
            except Exception:  # the client gets an answer whatever happened
                LOG.exception("a command failed")
                answer = {"error": INTERNAL_ERROR}
            finally:
                watcher.cancel()
                self._stops.discard(stop)
            writer.write(_line(answer))
            await writer.drain()
        writer.close()

    async def _run(self, line: bytes, stop: threading.Event, on_progress: OnProgress) -> Any:
        arguments = json.loads(line)
        name = arguments.pop("command", "")
        if name not in COMMANDS:
            raise unknown_name("command", str(name), COMMANDS)
        try:
            return await asyncio.to_thread(COMMANDS[name], self._gallery, stop, on_progress, **arguments)
        finally:
            self._on_change()


async def _stop_when_closed(reader: asyncio.StreamReader, stop: threading.Event) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read()  # the client sends nothing more, so this returns when the connection is closed
    stop.set()


def _progress_writer(writer: asyncio.StreamWriter) -> OnProgress:
    loop = asyncio.get_running_loop()

    def write(progress: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(writer.write, _line({"progress": progress}))

    return write


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def is_served(folder: Path) -> bool:
    """Whether a process serves the gallery in ``folder`` and takes commands."""
    connection = _connect(folder)
    if connection is None:
        return False
    connection.close()
    return True


def run_on_server(
    folder: Path, command: str, *, on_progress: OnProgress = lambda progress: None, **arguments: Any
) -> Any:
    """The result of a command that the serving process runs; None if no process serves the gallery.

    folder: the gallery's folder.
    command: a name in ``COMMANDS``.
    on_progress: called with the command's progress.
    arguments: of the command, as JSON values.
    """
    connection = _connect(folder)
    if connection is None:
        return None
    with connection:
        connection.sendall(_line({"command": command, **arguments}))
        with connection.makefile("rb") as answers:
            for line in answers:
                if not line.endswith(b"\n"):  # the server was killed while it wrote
                    continue
                answer = json.loads(line)
                if "progress" not in answer:
                    break
                on_progress(answer["progress"])
            else:
                raise HoldfastError(f"{folder}: the process that serves the gallery ended before it answered")
    if "error" in answer:
        raise HoldfastError(answer["error"])
    return answer["result"]


def _connect(folder: Path) -> socket.socket | None:
    if not (folder / SOCKET).exists():
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _socket_address(folder) as address:
            connection.connect(address)
    except BaseException as error:
        connection.close()
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):  # the socket of a process that was killed
            return None
        if isinstance(error, PermissionError):
            raise HoldfastError(f"{folder / SOCKET}: only the user who serves the gallery can use it") from None
        raise
    return connection


@contextlib.contextmanager
def _socket_address(folder: Path) -> Iterator[str]:
    """The socket's path; if it is too long for a socket's address, a shorter path to the same file (Linux only)."""
    path = str(folder / SOCKET)
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield path
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)


def open_local_or_served(folder: Path, device: str = "auto") -> SearchableGallery:
    """The gallery in ``folder``: opened on ``device``, or a client of the process that serves it."""
    if not is_served(folder):
        return open_gallery(folder, device=device)
    check_device_option(folder, device)
    return ServedGallery(folder)


def check_device_option(folder: Path, device: str) -> None:
    """Refuse a device for a served gallery: the serving process embeds on its own device."""
    if device != "auto":
        raise HoldfastError(
            f"{folder}: is being served, and embeds on the device of holdfast serve; leave out --device {device}"
        )


class ServedGallery:
    """A gallery that another process serves. Paths are made absolute: that process has its own working directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def read_only(self) -> None:
        """None, because this process does not know: the serving process checks every command."""
        return None

    def register(
        self,
        model: str | Path,
        *,
        force: bool = False,
        bridge: str = AUTO,
        bridge_pairs: int = MOST_PAIRS,
        new_vectors: VectorSource | None = None,
        progress: RegisterProgress = lambda stage, done, total: None,
    ) -> Version:
        """See ``Gallery.register``. ``new_vectors`` is a file that the serving process can read."""
        options: dict[str, Any] = {"force": force, "bridge": bridge, "bridge_pairs": bridge_pairs}
        if isinstance(new_vectors, str | Path):
            options["new_vectors"] = _absolute(new_vectors)
        elif new_vectors is not None:
            raise HoldfastError(f"{self._folder}: is being served; give the new vectors as a file")
        found = self._run(
            "register",
            on_progress=lambda figures: progress(figures["stage"], figures["done"], figures["total"]),
            model=_absolute(model),
            **options,
        )
        return Version(**found)

    def add(
        self,
        items: Iterable[Item],
        *,
        version: int | None = None,
        refused: Callable[[Item, HoldfastError], None],
        progress: Callable[[int], None] = lambda done: None,
        replaced: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Add items with paths or vectors, in batches; see ``Gallery.add``."""
        stream, done, size = iter(items), 0, 1
        options: dict[str, Any] = {} if version is None else {"version": version}
        while batch := list(itertools.islice(stream, size)):
            size = _batch_size(batch[0])
            found = self._run("add", items=[_item_json(one) for one in batch], **options)
            by_id = {one.id: one for one in batch}
            for bad in found["refused"]:
                refused(by_id[bad["id"]], HoldfastError(bad["reason"]))
            done += found["added"]
            progress(done)
            replaced(found["replaced"])
        return done

    def search(
        self,
        image: str | Path | None = None,
        *,
        id: str | None = None,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        indexed_by: Collection[int] | None = None,
        exact: bool = False,
    ) -> list[Hit]:
        options: dict[str, Any] = {"id": id, "k": k, "filter": filter, "exact": exact}
        if indexed_by is not None:
            options["indexed_by"] = list(indexed_by)
        path = None if image is None else _absolute(image)
        return [Hit(**row) for row in self._run("search", image=path, **options)]

    def delete(self, ids: Sequence[str]) -> list[str]:
        deleted: list[str] = []
        for start in range(0, len(ids), _IDS_PER_LINE):
            deleted += self._run("delete", ids=list(ids[start : start + _IDS_PER_LINE]))
        return deleted

    def versions(self) -> list[Version]:
        return [Version(**row) for row in self._run("versions")]

    def vector_sizes(self, version: int) -> VectorSizes:
        found = self._run("vectors_taken", version=version)
        return VectorSizes(**{**found, "features": tuple(found["features"])})

    def stats(self) -> dict[str, Any]:
        return dict(self._run("stats"))

    def _run(self, command: str, *, on_progress: OnProgress = lambda progress: None, **arguments: Any) -> Any:
        found = run_on_server(self._folder, command, on_progress=on_progress, **arguments)
        if found is None:
            raise HoldfastError(f"{self._folder}: the process that served the gallery has ended; try again")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


def _batch_size(item: Item) -> int:
    """How many items like this one are sent in one line. Images take longer than vectors, so fewer are sent."""
    numbers = item.image if item.vector is None else item.vector
    width = None if numbers is None else np.asarray(numbers).size
    return min(_VECTORS_PER_LINE, max(1, _NUMBERS_PER_LINE // width)) if width else _IMAGES_PER_LINE


def _item_json(item: Item) -> dict[str, Any]:
    """An item as JSON. Here ``image`` can only be a vector that a model embeds."""
    numbers = {"image": item.image, "vector": item.vector}
    return {
        "id": item.id,
        "path": None if item.path is None else _absolute(item.path),
        "label": item.label,
        "metadata": dict(item.metadata),
        **{name: np.asarray(value).tolist() for name, value in numbers.items() if value is not None},
    }


def _absolute(path: str | Path) -> str:
    return str(Path(path).absolute())
