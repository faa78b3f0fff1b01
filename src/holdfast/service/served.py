"""A gallery that another process serves, asked through that process as if it were open here."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.gallery import AttachedGallery, Gallery, Hit, Item, Version, open_gallery
from holdfast.gallery.vectors_taken import VectorsTaken
from holdfast.service.control import ask_server, is_served

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
