"""What the commands of this machine do with a gallery that is open: in the process that serves it, or in their own."""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.gallery import AttachedGallery, Gallery, Item
from holdfast.gallery.backfill import Backfill

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
