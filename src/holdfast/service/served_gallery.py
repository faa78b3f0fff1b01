"""A gallery that another process of this machine serves, by HTTP over the socket in the gallery's folder.

Only one process can have a gallery open. The verbs of ``holdfast gallery`` therefore ask the process that serves the
gallery, which runs their task beside the searches. Only the user who runs the server can open the socket.
"""

import contextlib
import http.client
import itertools
import json
import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import real_array
from holdfast.gallery import Hit, Item, SearchableGallery, Version, open_gallery
from holdfast.gallery.gallery_kinds import AUTO, MOST_PAIRS, RegisterProgress
from holdfast.gallery.gallery_versions import VectorSizes
from holdfast.gallery.vector_sources import VectorSource
from holdfast.service.admin_tasks import OnProgress

SOCKET = "control.socket"
_LONGEST_ADDRESS = 100  # Linux takes 107 bytes, macOS 103
_IMAGES_AT_ONCE, _VECTORS_AT_ONCE, _IDS_AT_ONCE = 32, 256, 256
_NUMBERS_AT_ONCE = 2**18  # about 6 MiB of JSON


@contextlib.contextmanager
def socket_address(folder: Path) -> Iterator[str]:
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


def is_served(folder: Path) -> bool:
    """Whether a process serves the gallery in ``folder`` and can be asked."""
    connection = _connect(folder)
    if connection is None:
        return False
    connection.close()
    return True


def run_on_server(folder: Path, task: str, *, on_progress: OnProgress = lambda progress: None, **arguments: Any) -> Any:
    """The result of a task that the serving process runs; None if no process serves the gallery.

    folder: the gallery's folder.
    task: a name in ``admin_tasks.TASKS``.
    on_progress: called with the task's progress. If it raises, the connection is closed, which stops the task.
    arguments: of the task, as JSON values.
    """
    opened = _connect(folder)
    if opened is None:
        return None
    connection = http.client.HTTPConnection("localhost")
    connection.sock = opened
    with contextlib.closing(connection):
        try:
            body = json.dumps(arguments).encode()
            with contextlib.suppress(BrokenPipeError):  # refused before the whole body was read; the answer says why
                connection.request("POST", f"/v1/admin/{task}", body, {"Content-Type": "application/json"})
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


def _connect(folder: Path) -> socket.socket | None:
    if not (folder / SOCKET).exists():
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        with socket_address(folder) as address:
            connection.connect(address)
    except BaseException as error:
        connection.close()
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):  # the socket of a process that was killed
            return None
        if isinstance(error, PermissionError):
            raise HoldfastError(f"{folder / SOCKET}: only the user who serves the gallery can use it") from None
        raise
    return connection


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
        model: str | Path | None = None,
        *,
        force: bool = False,
        bridge: str = AUTO,
        bridge_pairs: int = MOST_PAIRS,
        new_vectors: VectorSource | None = None,
        old_vectors: VectorSource | None = None,
        progress: RegisterProgress = lambda stage, done, total: None,
    ) -> Version:
        """See ``Gallery.register``. Vectors are files that the serving process can read."""
        options: dict[str, Any] = {"force": force, "bridge": bridge, "bridge_pairs": bridge_pairs}
        if Path(bridge).is_dir():
            options["bridge"] = _absolute(bridge)
        for name, vectors in (("new_vectors", new_vectors), ("old_vectors", old_vectors)):
            if isinstance(vectors, str | Path):
                options[name] = _absolute(vectors)
            elif vectors is not None:
                raise HoldfastError(f"{self._folder}: is being served; give the vectors as a file")
        found = self._run(
            "register",
            on_progress=lambda figures: progress(figures["stage"], figures["done"], figures["total"]),
            model=None if model is None else _absolute(model),
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
        vector: ArrayLike | None = None,
        id: str | None = None,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        indexed_by: Collection[int] | None = None,
        exact: bool = False,
        offset: int = 0,
    ) -> list[Hit]:
        options: dict[str, Any] = {"id": id, "k": k, "filter": filter, "exact": exact, "offset": offset}
        if indexed_by is not None:
            options["indexed_by"] = list(indexed_by)
        if vector is not None:
            options["vector"] = real_array(vector, "query").tolist()
        path = None if image is None else _absolute(image)
        return [Hit(**row) for row in self._run("search", image=path, **options)]

    def delete(self, ids: Sequence[str]) -> list[str]:
        deleted: list[str] = []
        for start in range(0, len(ids), _IDS_AT_ONCE):
            deleted += self._run("delete", ids=list(ids[start : start + _IDS_AT_ONCE]))
        return deleted

    def versions(self) -> list[Version]:
        return [Version(**row) for row in self._run("versions")]

    def vector_sizes(self, version: int) -> VectorSizes:
        found = self._run("vector_sizes", version=version)
        return VectorSizes(**{**found, "features": tuple(found["features"])})

    def stats(self) -> dict[str, Any]:
        return dict(self._run("stats"))

    def _run(self, task: str, *, on_progress: OnProgress = lambda progress: None, **arguments: Any) -> Any:
        found = run_on_server(self._folder, task, on_progress=on_progress, **arguments)
        if found is None:
            raise HoldfastError(f"{self._folder}: the process that served the gallery has ended; try again")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


def _batch_size(item: Item) -> int:
    """How many items like this one are sent in one request. Images take longer than vectors, so fewer are sent."""
    numbers = item.image if item.vector is None else item.vector
    width = None if numbers is None else np.asarray(numbers).size
    return min(_VECTORS_AT_ONCE, max(1, _NUMBERS_AT_ONCE // width)) if width else _IMAGES_AT_ONCE


def _item_json(item: Item) -> dict[str, Any]:
    """An item as JSON. Here ``image`` can only be a vector that a model embeds."""
    numbers = {"image": item.image, "vector": item.vector}
    return {
        "id": item.id,
        "path": None if item.path is None else _absolute(item.path),
        "label": item.label,
        "metadata": dict(item.metadata),
        **{
            name: real_array(value, f"item {item.id!r}").tolist()
            for name, value in numbers.items()
            if value is not None
        },
    }


def _absolute(path: str | Path) -> str:
    return str(Path(path).absolute())
