"""``holdfast gallery add``: images of files and folders, or vectors of a file, with progress on stderr."""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.progress import LINE_SECONDS, clock
from holdfast.cli.show import say
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.gallery import Item, WritableGallery
    from holdfast.gallery.item_files import MetadataTable


IMAGE_SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".avif"))


def add_images(
    gallery: "WritableGallery",
    paths: list[Path],
    *,
    label: str | None,
    from_folders: bool,
    metadata: dict[str, Any],
    table: "MetadataTable | None" = None,
    quiet: bool,
) -> dict[str, Any]:
    """Add all images below the paths; counts of added, replaced and ignored files, and the refused ones with reasons.

    table: further metadata by id; its fields override ``metadata``.
    """
    from holdfast.gallery import Item

    if label is not None and from_folders:
        raise HoldfastError("--label and --labels-from-folders both name the label; choose one")
    if table is not None and table.has_labels and (label is not None or from_folders):
        raise HoldfastError(f"{table.name} has a column label, and an option names the label too; choose one")
    ignored: list[Path] = []
    listed = [pair for path in paths for pair in _images(path, ignored)]
    if not listed:
        kinds = f"; an image is a file named {', '.join(sorted(IMAGE_SUFFIXES))}" if ignored else ""
        raise HoldfastError(f"{', '.join(str(path) for path in paths)}: no images there{kinds}")
    _refuse_shared_ids(listed)

    unmatched = {} if table is None else table.count_unmatched((name for name, _ in listed), "image")

    def items() -> Iterator[Item]:
        for name, path in listed:
            own, named = ({}, None) if table is None else table.fields_of(name)
            given = named if named is not None else path.parent.name if from_folders else label
            yield Item(name, path=path, label=given, metadata={**metadata, **own})

    found = add_items(gallery, items(), len(listed), "images", quiet=quiet)
    return {**found, "ignored": len(ignored), **unmatched}


def _images(path: Path, ignored: list[Path]) -> list[tuple[str, Path]]:
    """(id, file) of an image, or of all images below a folder by name; hidden files are skipped."""
    if not path.is_dir():
        return [(path.name, path)]
    files = sorted(file for file in path.rglob("*") if file.is_file() and not _hidden(file.relative_to(path)))
    ignored += [file for file in files if file.suffix.lower() not in IMAGE_SUFFIXES]
    return [(file.relative_to(path).as_posix(), file) for file in files if file.suffix.lower() in IMAGE_SUFFIXES]


def _hidden(below: Path) -> bool:
    return any(part.startswith(".") for part in below.parts)


def _refuse_shared_ids(listed: list[tuple[str, Path]]) -> None:
    """Refuse two files with the same id: the second would replace the first."""
    seen: dict[str, Path] = {}
    for name, path in listed:
        other = seen.setdefault(name, path)
        if other.absolute() != path.absolute():
            raise HoldfastError(
                f"{other} and {path}: both would have the id {name!r}; add the folder above them, or one after a rename"
            )


def is_vector_file(paths: list[Path]) -> bool:
    """Whether the paths are one file of vectors; refused if there are other paths beside it."""
    from holdfast.gallery.item_files import VECTOR_SUFFIXES

    found = [path for path in paths if path.suffix.lower() in VECTOR_SUFFIXES and not path.is_dir()]
    if found and len(paths) > 1:
        raise HoldfastError(f"{found[0]}: a file of vectors is added by a command of its own")
    return bool(found)


def add_vectors(
    gallery: "WritableGallery",
    path: Path,
    *,
    version: int | None,
    embed: bool | None,
    label: str | None,
    metadata: dict[str, Any],
    table: "MetadataTable | None",
    quiet: bool,
) -> dict[str, Any]:
    """Add all vectors of a file; as ``add_images``, with ``ignored_columns`` by name, each with the reason."""
    from holdfast.gallery.item_files import VectorFile

    if version is None:
        known = ", ".join(str(one.number) for one in gallery.versions())
        raise HoldfastError(f"{path}: --version must say which version made these vectors; there are {known}")
    sizes = gallery.vector_sizes(version)
    file = VectorFile(path)
    if (label is not None) + file.has_labels + (table is not None and table.has_labels) > 1:
        raise HoldfastError(f"{path}: more than one of its labels, --label and --metadata names the label; choose one")
    as_input = sizes.is_input(file.width, embed, str(path))
    unmatched = {} if table is None else table.count_unmatched(file.ids(), "vector")

    def items() -> Iterator["Item"]:
        for item in file.items(embed=as_input):
            own, named = ({}, None) if table is None else table.fields_of(item.id)
            yield replace(item, metadata={**metadata, **item.metadata, **own}, label=item.label or named or label)

    found = add_items(gallery, items(), len(file), "vectors", quiet=quiet, version=version)
    return {**found, "ignored": len(file.ignored), "ignored_columns": file.ignored, **unmatched}


_MOST_REASONS_SHOWN = 10


def add_items(
    gallery: "WritableGallery",
    items: "Iterator[Item]",
    count: int,
    what: str,
    *,
    quiet: bool,
    version: int | None = None,
) -> dict[str, Any]:
    """Add ``count`` items; the numbers of added and replaced items, and the refused ones with reasons.

    what: "images" or "vectors", for messages.
    """
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


def print_added(folder: Path, found: dict[str, Any]) -> None:
    """Print the result of an addition; the reasons of refusals go to stderr."""
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
    for bad in found["refused"][:_MOST_REASONS_SHOWN]:
        typer.echo(f"refused: {bad['reason']}", err=True)
    if len(found["refused"]) > _MOST_REASONS_SHOWN:
        typer.echo(f"... and {len(found['refused']) - _MOST_REASONS_SHOWN} more: --json lists them all", err=True)
