"""A gallery that another process of this machine serves, by HTTP with the token that it has left in the folder.

Only one process can have a gallery open. The verbs of ``holdfast gallery`` therefore ask the process that serves the
gallery, which runs their task beside the searches (``owner_tasks``). Without fastapi: the verbs should start fast.
"""

import contextlib
import http.client
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from filelock import FileLock, Timeout

from holdfast.core.errors import HoldfastError
from holdfast.core.locations import absolute
from holdfast.core.real_arrays import real_array
from holdfast.core.storage import read_json
from holdfast.gallery import Backfill, BaseGallery, Hit, Item, Version, open_gallery
from holdfast.gallery.folder import GalleryFolder
from holdfast.gallery.gallery_base import RegisterOptions, SearchOptions, SearchQuery
from holdfast.gallery.reembed import ReembedProgress
from holdfast.gallery.vector_sources import VectorSource

_IMAGES_AT_ONCE, _VECTORS_AT_ONCE, _IDS_AT_ONCE = 32, 256, 256
_NUMBERS_AT_ONCE = 2**18  # about 6 MiB of JSON

OnProgress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class ServerRecord:
    """Where the process that serves a gallery listens, and the token of its owner's tasks."""

    url: str
    token: str

    def write(self, folder: Path) -> None:
        """Write it into the gallery's folder, readable for this user only."""
        file = GalleryFolder(folder).served
        file.unlink(missing_ok=True)  # left by a process that was killed: this process has the gallery's lock
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            json.dump({"url": self.url, "token": self.token}, opened)

    @classmethod
    def read(cls, folder: Path) -> "ServerRecord | None":
        """The record of the process that serves the gallery now; None if no process does."""
        file = GalleryFolder(folder).served
        if not file.exists():
            return None
        lock = FileLock(folder / "lock")
        with contextlib.suppress(Timeout):  # the serving process holds the lock; a killed one left the record only
            lock.acquire(timeout=0)
            lock.release()
            return None
        try:
            return cls(**read_json(file))
        except PermissionError:
            raise HoldfastError(f"{file}: only the user who serves the gallery can use it") from None
        except FileNotFoundError:  # the server ends
            return None


def run_on_server(folder: Path, task: str, *, on_progress: OnProgress = lambda progress: None, **arguments: Any) -> Any:
    """The result of a task that the serving process runs; None if no process serves the gallery.

    folder: the gallery's folder.
    task: a name in ``owner_tasks.TASKS``.
    on_progress: called with the task's progress. If it raises, the connection is closed, which stops the task.
    arguments: of the task, as JSON values.
    """
    server = ServerRecord.read(folder)
    if server is None:
        return None
    address = urlsplit(server.url)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.token}"}
    line: dict[str, Any] | None = None
    with contextlib.closing(http.client.HTTPConnection(str(address.hostname), address.port)) as connection:
        try:
            connection.request("POST", f"/v1/admin/{task}", json.dumps(arguments).encode(), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise HoldfastError(json.loads(answer.read())["error"]["reason"])
            for line in _lines(answer):
                if "progress" not in line:
                    break
                on_progress(line["progress"])
            else:
                line = None
        except (http.client.HTTPException, ConnectionError):
            line = None
    if line is None:
        raise HoldfastError(f"{folder}: the process that serves the gallery ended before it answered")
    if "error" in line:
        raise HoldfastError(line["error"])
    return line["result"]


def _lines(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The lines of an answer, each a JSON object; a line that a killed server left incomplete is left out."""
    for line in answer:
        if line.endswith(b"\n"):
            yield json.loads(line)


def open_local_or_served(folder: Path) -> BaseGallery:
    """The gallery in ``folder``, or a client of the process that serves it."""
    return open_gallery(folder) if ServerRecord.read(folder) is None else ServedGallery(folder)


class ServedGallery(BaseGallery):
    """A gallery that another process serves. Paths are made absolute: that process has its own working directory.

    It does not know whether the gallery is read-only: the serving process checks every command.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _register(self, model: str | Path | None, options: RegisterOptions) -> Version:
        """See ``Gallery.register``. Vectors are files that the serving process can read."""
        record = self._run(
            "register",
            on_progress=lambda figures: options.progress(figures["stage"], figures["done"], figures["total"]),
            model=None if model is None else _absolute(model),
            force=options.force,
            bridge=_absolute(options.bridge) if Path(options.bridge).is_dir() else options.bridge,
            bridge_pairs=options.bridge_pairs,
            new_vectors=self._file(options.new_vectors),
            old_vectors=self._file(options.old_vectors),
        )
        return Version(**record)

    def add(
        self,
        items: Iterable[Item],
        *,
        version: int | None = None,
        refused: Callable[[Item, HoldfastError], None] | None = None,
        progress: Callable[[int], None] = lambda done: None,
        replaced: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Add items with paths or vectors, in batches; see ``Gallery.add``."""
        stream, done, size = iter(items), 0, 1
        while batch := list(itertools.islice(stream, size)):
            size = _batch_size(batch[0])
            answer = self._run("add", items=[_item_json(item) for item in batch], version=version)
            by_id = {item.id: item for item in batch}
            for bad in answer["refused"]:
                error = HoldfastError(bad["reason"])
                if refused is None:
                    raise error
                refused(by_id[bad["id"]], error)
            done += answer["added"]
            progress(done)
            replaced(answer["replaced"])
        return done

    def _search(self, query: SearchQuery, options: SearchOptions) -> list[Hit]:
        if query.image is not None and not isinstance(query.image, str | Path):
            raise HoldfastError(f"{self._folder}: is being served; give the image as a file")
        among = options.indexed_by
        rows = self._run(
            "search",
            image=None if query.image is None else _absolute(query.image),
            vector=None if query.vector is None else real_array(query.vector, "query").tolist(),
            id=query.id,
            version=query.version,
            k=options.k,
            filter=options.filter,
            indexed_by=among if among is None or isinstance(among, int) else list(among),
            exact=options.exact,
            offset=options.offset,
        )
        return [Hit(**row) for row in rows]

    def delete(self, ids: Iterable[str]) -> list[str]:
        deleted: list[str] = []
        stream = iter(ids)
        while block := list(itertools.islice(stream, _IDS_AT_ONCE)):
            deleted += self._run("delete", ids=block)
        return deleted

    def backfill(
        self,
        to: int | None = None,
        *,
        rate: float | None = None,
        limit: int | None = None,
        vectors: VectorSource | None = None,
        stop: threading.Event | None = None,
        progress: Callable[[Backfill], None] = lambda state: None,
    ) -> Backfill:
        """See ``Gallery.backfill``. Vectors are files that the serving process can read. ``progress`` may stop it."""
        options = {"to": to, "rate": rate, "limit": limit, "vectors": self._file(vectors)}
        return _backfill(self._run("backfill", lambda state: progress(_backfill(state)), **options))

    def rollback(
        self,
        *,
        drop: bool = False,
        cancel: bool = False,
        rate: float | None = None,
        stop: threading.Event | None = None,
        progress: Callable[[ReembedProgress], None] = lambda state: None,
    ) -> dict[str, Any]:
        options = {"drop": drop, "cancel": cancel, "rate": rate}
        return dict(self._run("rollback", lambda state: progress(ReembedProgress(**state)), **options))

    def _file(self, vectors: VectorSource | None) -> str | None:
        """Vectors as the serving process finds them: an address, or the path of a file or a folder of shards."""
        if vectors is not None and not isinstance(vectors, str | Path):
            raise HoldfastError(f"{self._folder}: is being served; give the vectors as a file")
        return None if vectors is None else absolute(str(vectors))

    def versions(self) -> list[Version]:
        return [Version(**row) for row in self._run("versions")]

    def stats(self) -> dict[str, Any]:
        return dict(self._run("stats"))

    def _run(self, task: str, on_progress: OnProgress = lambda progress: None, **arguments: Any) -> Any:
        answer = run_on_server(self._folder, task, on_progress=on_progress, **arguments)
        if answer is None:
            raise HoldfastError(f"{self._folder}: the process that served the gallery has ended; try again")
        return answer


def _backfill(state: Mapping[str, Any]) -> Backfill:
    return Backfill(**{**state, "progress": ReembedProgress(**state["progress"])})


def _batch_size(item: Item) -> int:
    """How many items like this one are sent in one request. Images take longer than vectors, so fewer are sent."""
    width = None if item.vector is None else np.asarray(item.vector).size
    return min(_VECTORS_AT_ONCE, max(1, _NUMBERS_AT_ONCE // width)) if width else _IMAGES_AT_ONCE


def _item_json(item: Item) -> dict[str, Any]:
    """An item with a path or a vector, as JSON."""
    return {
        "id": item.id,
        "path": None if item.path is None else _absolute(item.path),
        "label": item.label,
        "metadata": dict(item.metadata),
        "vector": None if item.vector is None else real_array(item.vector, f"item {item.id!r}").tolist(),
    }


def _absolute(path: str | Path) -> str:
    return str(Path(path).absolute())
