"""Items into a gallery with progress on stderr, and what became of them; of images and of vectors alike."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.progress import LINE_SECONDS, clock
from holdfast.cli.show import say
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.gallery import AttachedGallery, Gallery, Item
    from holdfast.service.served import ServedGallery

_SHOWN = 10


def add_items(
    gallery: "Gallery | AttachedGallery | ServedGallery",
    items: "Iterator[Item]",
    count: int,
    what: str,
    *,
    quiet: bool,
    version: int | None = None,
) -> dict[str, Any]:
    """Add ``count`` items, called ``what``; how many are added, how many were there before, which were refused."""
    refused: list[dict[str, str]] = []
    replaced: list[int] = []
    stored = 0
    started = printed = time.monotonic()

    def tell(done: int) -> None:
        nonlocal printed, stored
        stored, now = done, time.monotonic()
        if quiet or (now - printed < LINE_SECONDS and not sys.stderr.isatty()):
            return
        printed = now
        seen = done + len(refused)
        line = f"add: {seen} of {count}, {clock((now - started) / seen * (count - seen))} left"
        sys.stderr.write(f"\r{line}\x1b[K" if sys.stderr.isatty() else f"{line}\n")
        sys.stderr.flush()

    def note(item: "Item", error: HoldfastError) -> None:
        refused.append({"id": item.id, "reason": str(error)})

    try:
        added = gallery.add(items, version=version, refused=note, progress=tell, replaced=replaced.append)
    except KeyboardInterrupt:
        kept = f"{stored} of {count} {what} are stored"
        typer.echo(f"holdfast: stopped; {kept}: the same command adds all of them", err=True)
        raise typer.Exit(130) from None
    if not quiet and sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    return {"added": added, "replaced": sum(replaced), "refused": refused}


def tell_added(folder: Path, found: dict[str, Any]) -> None:
    """What was done, in words; the reasons of refusals on stderr."""
    columns = found.get("ignored_columns")
    other = f", {found['ignored']} other files passed over" if found["ignored"] and columns is None else ""
    typer.echo(f"{folder}: {found['added']} added, {len(found['refused'])} refused{other}")
    if found["replaced"] and columns is None:
        say(
            f"{found['replaced']} of them replaced items of the same id (an image's path below the folder you name). "
            "Two images with one name? Add the folder above theirs."
        )
    elif found["replaced"]:
        say(f"{found['replaced']} of them replaced items of the same id.")
    for name, reason in (columns or {}).items():
        say(f"ignored: {name} ({reason})")
    for what in ("image", "vector"):
        rows, items = found.get(f"rows_without_{what}", 0), found.get(f"{what}s_without_row", 0)
        if rows or items:
            say(f"--metadata: rows that name no {what}: {rows}; {what}s without a row: {items}")
    for bad in found["refused"][:_SHOWN]:
        typer.echo(f"refused: {bad['reason']}", err=True)
    if len(found["refused"]) > _SHOWN:
        typer.echo(f"... and {len(found['refused']) - _SHOWN} more: --json lists them all", err=True)
