"""What the owner of a gallery may do with it: also with models, images and files that only paths name.

The verbs of ``holdfast gallery`` run these tasks. If a process serves the gallery, it offers them as admin routes, on
the socket in the gallery's folder only (``local_socket``). Without fastapi: the verbs should start fast.
"""

import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.gallery import Gallery, Item, OpenGallery, writable
from holdfast.gallery.backfill import Backfill

OnProgress = Callable[[dict[str, Any]], None]


def _register(
    gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress, *, model: str | None, **options: Any
) -> Any:
    def progress(stage: str, done: int, total: int) -> None:
        if stop.is_set():
            raise HoldfastError("stopped; the model was not registered")
        on_progress({"stage": stage, "done": done, "total": total})

    return gallery.register(model, progress=progress, **options).as_json()


def _backfill(
    gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress, *, ray: str | None = None, **options: Any
) -> Any:
    def progress(state: Backfill) -> None:
        on_progress({**state.progress.figures(), "share": state.share})

    managed = _managed(gallery)
    if ray is not None:
        return managed.backfill_on_ray(ray, stop=stop, progress=progress, **options).as_json()
    return managed.backfill(stop=stop, progress=progress, **options).as_json()


def _rollback(gallery: OpenGallery, stop: threading.Event, on_progress: OnProgress, **options: Any) -> Any:
    return _managed(gallery).rollback(stop=stop, progress=lambda state: on_progress(state.figures()), **options)


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


TASKS: dict[str, Callable[..., Any]] = {
    "register": _register,
    "backfill": _backfill,
    "rollback": _rollback,
    "add": _add,
    "search": _search,
    "delete": _delete,
    "versions": _versions,
    "vector_sizes": _vector_sizes,
    "stats": _stats,
}
"""By name. Arguments: the gallery, an event that stops the task, a callback for progress, then the task's own."""
