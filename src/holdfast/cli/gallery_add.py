"""Images of files and folders into a gallery, with progress on stderr."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.progress import LINE_SECONDS, clock
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.gallery import AttachedGallery, Gallery
    from holdfast.service.served import ServedGallery

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
    """Add every image there is; how many, and which were refused and why."""
    from holdfast.gallery import Item

    if label is not None and from_folders:
        raise HoldfastError("--label and --labels-from-folders both name the label; choose one")
    listed = [pair for path in paths for pair in _images(path)]
    if not listed:
        raise HoldfastError(f"{', '.join(str(path) for path in paths)}: no images there")

    def items() -> Iterator[Item]:
        for name, path in listed:
            yield Item(name, path=path, label=path.parent.name if from_folders else label, metadata=metadata)

    refused: list[dict[str, str]] = []
    started = printed = time.monotonic()

    def tell(done: int) -> None:
        nonlocal printed
        now = time.monotonic()
        if quiet or (now - printed < LINE_SECONDS and not sys.stderr.isatty()):
            return
        printed = now
        seen = done + len(refused)
        line = f"add: {seen} of {len(listed)}, {clock((now - started) / seen * (len(listed) - seen))} left"
        sys.stderr.write(f"\r{line}\x1b[K" if sys.stderr.isatty() else f"{line}\n")
        sys.stderr.flush()

    def note(item: Item, error: HoldfastError) -> None:
        refused.append({"id": item.id, "reason": str(error)})

    added = gallery.add(items(), refused=note, progress=tell)
    if not quiet and sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    return {"added": added, "refused": refused}


def _images(path: Path) -> list[tuple[str, Path]]:
    """(id, file) of an image, or of every image below a folder in order of name."""
    if not path.is_dir():
        return [(path.name, path)]
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    return [(file.relative_to(path).as_posix(), file) for file in files]
