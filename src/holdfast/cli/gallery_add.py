"""Images of files and folders into a gallery, with progress on stderr."""

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
    from holdfast.gallery import AttachedGallery, Gallery
    from holdfast.service.served import ServedGallery

_SHOWN = 10
SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".avif"))


def add_images(
    gallery: "Gallery | AttachedGallery | ServedGallery",
    paths: list[Path],
    *,
    label: str | None,
    from_folders: bool,
    metadata: dict[str, Any],
    quiet: bool,
) -> dict[str, Any]:
    """Add every image there is; how many, how many were there before, and which were refused and why.

    ``ignored`` counts the other files of the folders.
    """
    from holdfast.gallery import Item

    if label is not None and from_folders:
        raise HoldfastError("--label and --labels-from-folders both name the label; choose one")
    ignored: list[Path] = []
    listed = [pair for path in paths for pair in _images(path, ignored)]
    if not listed:
        kinds = f"; an image is a file named {', '.join(sorted(SUFFIXES))}" if ignored else ""
        raise HoldfastError(f"{', '.join(str(path) for path in paths)}: no images there{kinds}")
    _refuse_one_id_for_two(listed)

    def items() -> Iterator[Item]:
        for name, path in listed:
            yield Item(name, path=path, label=path.parent.name if from_folders else label, metadata=metadata)

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
        line = f"add: {seen} of {len(listed)}, {clock((now - started) / seen * (len(listed) - seen))} left"
        sys.stderr.write(f"\r{line}\x1b[K" if sys.stderr.isatty() else f"{line}\n")
        sys.stderr.flush()

    def note(item: Item, error: HoldfastError) -> None:
        refused.append({"id": item.id, "reason": str(error)})

    try:
        added = gallery.add(items(), refused=note, progress=tell, replaced=replaced.append)
    except KeyboardInterrupt:
        kept = f"{stored} of {len(listed)} images are stored"
        typer.echo(f"holdfast: stopped; {kept}: the same command adds all of them", err=True)
        raise typer.Exit(130) from None
    if not quiet and sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    return {"added": added, "replaced": sum(replaced), "refused": refused, "ignored": len(ignored)}


def tell_added(folder: Path, found: dict[str, Any]) -> None:
    """What ``add_images`` did, in words; the reasons on stderr."""
    other = f", {found['ignored']} other files passed over" if found["ignored"] else ""
    typer.echo(f"{folder}: {found['added']} added, {len(found['refused'])} refused{other}")
    if found["replaced"]:
        say(
            f"{found['replaced']} of them replaced items of the same id (an image's path below the folder you name). "
            "Two images with one name? Add the folder above theirs."
        )
    for bad in found["refused"][:_SHOWN]:
        typer.echo(f"refused: {bad['reason']}", err=True)
    if len(found["refused"]) > _SHOWN:
        typer.echo(f"... and {len(found['refused']) - _SHOWN} more: --json lists them all", err=True)


def _images(path: Path, ignored: list[Path]) -> list[tuple[str, Path]]:
    """(id, file) of an image, or of every image below a folder in order of name; hidden files are not looked at."""
    if not path.is_dir():
        return [(path.name, path)]
    files = sorted(file for file in path.rglob("*") if file.is_file() and not _hidden(file.relative_to(path)))
    ignored += [file for file in files if file.suffix.lower() not in SUFFIXES]
    return [(file.relative_to(path).as_posix(), file) for file in files if file.suffix.lower() in SUFFIXES]


def _hidden(below: Path) -> bool:
    return any(part.startswith(".") for part in below.parts)


def _refuse_one_id_for_two(listed: list[tuple[str, Path]]) -> None:
    """The second would take the first one's place."""
    seen: dict[str, Path] = {}
    for name, path in listed:
        other = seen.setdefault(name, path)
        if other.absolute() != path.absolute():
            raise HoldfastError(
                f"{other} and {path}: both would have the id {name!r}; add the folder above them, or one after a rename"
            )
