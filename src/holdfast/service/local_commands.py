"""Commands of this machine to a gallery that is being served: a socket in the gallery's folder, for its owner only.

One process has a gallery open at a time. So the verbs of ``holdfast gallery`` hand their command to the process that
serves the gallery, which runs it beside the searches. They name folders of models and files of images, which is why no
token of the HTTP service is enough: whoever may open this socket may write to the gallery's folder anyway.

Lines of JSON: {"command": ..., arguments} one way, {"progress": ...} as often as there is any and then {"result": ...}
or {"error": reason} the other. Whoever hangs up stops the command where it can be stopped; so does the server's end.

What the commands of this machine do with a gallery that is open: in the process that serves it, or in their own.

A gallery that another process serves, asked through that process as if it were open here.
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
from holdfast.gallery import AttachedGallery, Gallery, Hit, Item, Version, open_gallery
from holdfast.gallery.backfill import Backfill
from holdfast.gallery.versions import VectorsTaken
from holdfast.service.errors import LOG

Tell = Callable[[dict[str, Any]], None]


def _register(gallery: Gallery, stop: threading.Event, tell: Tell, *, model: str, force: bool = False) -> Any:
    return gallery.register(Path(model), force=force).as_json()


def _backfill(gallery: Gallery, stop: threading.Event, tell: Tell, **options: Any) -> Any:
    def progress(state: Backfill) -> None:
        tell({**state.moving.figures(), "share": state.share})

    return gallery.backfill(stop=stop, progress=progress, **options).as_json()


def _rollback(gallery: Gallery, stop: threading.Event, tell: Tell, **options: Any) -> Any:
    return gallery.rollback(stop=stop, progress=lambda state: tell(state.figures()), **options)


def _move(gallery: Gallery, stop: threading.Event, tell: Tell, **options: Any) -> Any:
    copied, started = 0, time.monotonic()

    def progress(more: int) -> None:
        nonlocal copied
        copied += more
        tell({"copied": copied, "rate": copied / max(time.monotonic() - started, 1e-9)})

    before = gallery.stats()["engine"]
    found = gallery.move(stop=stop, progress=progress, **options)
    return {"from": before, "copied": copied, **found}


def _add(
    gallery: Gallery, stop: threading.Event, tell: Tell, *, items: list[dict[str, Any]], version: int | None = None
) -> Any:
    refused: list[dict[str, str]] = []
    replaced: list[int] = []

    def note(item: Item, error: HoldfastError) -> None:
        refused.append({"id": item.id, "reason": str(error)})

    added = gallery.add((Item(**one) for one in items), version=version, refused=note, replaced=replaced.append)
    return {"added": added, "replaced": sum(replaced), "refused": refused}


def _search(gallery: Gallery, stop: threading.Event, tell: Tell, **question: Any) -> Any:
    return [hit.as_json() for hit in gallery.search(**question)]


def _delete(gallery: Gallery, stop: threading.Event, tell: Tell, *, ids: list[str]) -> Any:
    return gallery.delete(ids)


def _versions(gallery: Gallery | AttachedGallery, stop: threading.Event, tell: Tell) -> Any:
    return [one.as_json() for one in gallery.versions()]


def _vectors_taken(gallery: Gallery | AttachedGallery, stop: threading.Event, tell: Tell, *, version: int) -> Any:
    return asdict(gallery.vectors_taken(version))


def _stats(gallery: Gallery | AttachedGallery, stop: threading.Event, tell: Tell) -> Any:
    return gallery.stats()


COMMANDS: dict[str, Callable[..., Any]] = {
    "register": _register,
    "backfill": _backfill,
    "rollback": _rollback,
    "move": _move,
    "add": _add,
    "search": _search,
    "delete": _delete,
    "versions": _versions,
    "vectors_taken": _vectors_taken,
    "stats": _stats,
}
"""By name: a function of the gallery, an event that asks it to stop, where to tell progress, and keyword arguments."""


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


_ITEMS_AT_ONCE, _VECTORS_AT_ONCE, _IDS_AT_ONCE = 32, 256, 256
_NUMBERS_AT_ONCE = 2**18  # some 6 MiB of JSON; a line may have 16


def open_or_ask(folder: Path, device: str = "auto") -> "Gallery | AttachedGallery | ServedGallery":
    """The gallery in ``folder``: opened on ``device``, or, where a process serves it, asked there."""
    if not is_served(folder):
        return open_gallery(folder, device=device)
    refuse_device(folder, device)
    return ServedGallery(folder)


def refuse_device(folder: Path, device: str) -> None:
    """A gallery that is being served embeds where its server does: a command may not name another device."""
    if device != "auto":
        raise HoldfastError(
            f"{folder}: is being served, and embeds where holdfast serve was told to; leave out --device {device}"
        )


class ServedGallery:
    """What the commands need of a gallery. Paths are made absolute: the other process may be elsewhere."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def register(self, model: str | Path, *, force: bool = False) -> Version:
        return Version(**self._ask("register", model=_absolute(model), force=force))

    def add(
        self,
        items: Iterable[Item],
        *,
        version: int | None = None,
        refused: Callable[[Item, HoldfastError], None],
        progress: Callable[[int], None] = lambda done: None,
        replaced: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Items with paths or vectors, some at a time; see ``Gallery.add``."""
        stream, done, size = iter(items), 0, 1
        asked = {} if version is None else {"version": version}
        while batch := list(itertools.islice(stream, size)):
            size = _at_once(batch[0])
            found = self._ask("add", items=[_row(one) for one in batch], **asked)
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
        question: dict[str, Any] = {"id": id, "k": k, "filter": filter, "exact": exact}
        if indexed_by is not None:
            question["indexed_by"] = list(indexed_by)
        where = None if image is None else _absolute(image)
        return [Hit(**row) for row in self._ask("search", image=where, **question)]

    def delete(self, ids: Sequence[str]) -> list[str]:
        gone: list[str] = []
        for start in range(0, len(ids), _IDS_AT_ONCE):
            gone += self._ask("delete", ids=list(ids[start : start + _IDS_AT_ONCE]))
        return gone

    def versions(self) -> list[Version]:
        return [Version(**row) for row in self._ask("versions")]

    def vectors_taken(self, version: int) -> VectorsTaken:
        found = self._ask("vectors_taken", version=version)
        return VectorsTaken(**{**found, "features": tuple(found["features"])})

    def stats(self) -> dict[str, Any]:
        return dict(self._ask("stats"))

    def _ask(self, command: str, **arguments: Any) -> Any:
        found = ask_server(self._folder, command, **arguments)
        if found is None:
            raise HoldfastError(f"{self._folder}: the process that served the gallery has ended; try again")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


def _at_once(item: Item) -> int:
    """How many like this one are sent together: fewer images, which take longer, for progress is told by batch."""
    numbers = item.image if item.vector is None else item.vector
    width = None if numbers is None else np.asarray(numbers).size
    return min(_VECTORS_AT_ONCE, max(1, _NUMBERS_AT_ONCE // width)) if width else _ITEMS_AT_ONCE


def _row(item: Item) -> dict[str, Any]:
    """An item as JSON; an image that is given as numbers is a vector that a model embeds."""
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
