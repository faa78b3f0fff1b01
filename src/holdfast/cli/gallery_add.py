"""Images of files and folders into a gallery."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.gallery_adding import add_items
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.gallery import AttachedGallery, Gallery
    from holdfast.gallery.metadata_table import MetadataTable
    from holdfast.service.served import ServedGallery

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".avif"))


def add_images(
    gallery: "Gallery | AttachedGallery | ServedGallery",
    paths: list[Path],
    *,
    label: str | None,
    from_folders: bool,
    metadata: dict[str, Any],
    table: "MetadataTable | None" = None,
    quiet: bool,
) -> dict[str, Any]:
    """Add every image there is; how many, how many were there before, and which were refused and why.

    table: further metadata by id, which goes before ``metadata``. ``ignored`` counts the other files of the folders.
    """
    from holdfast.gallery import Item

    if label is not None and from_folders:
        raise HoldfastError("--label and --labels-from-folders both name the label; choose one")
    if table is not None and table.has_labels and (label is not None or from_folders):
        raise HoldfastError(f"{table.name} has a column label, and an option names the label too; choose one")
    ignored: list[Path] = []
    listed = [pair for path in paths for pair in _images(path, ignored)]
    if not listed:
        kinds = f"; an image is a file named {', '.join(sorted(SUFFIXES))}" if ignored else ""
        raise HoldfastError(f"{', '.join(str(path) for path in paths)}: no images there{kinds}")
    _refuse_one_id_for_two(listed)

    unmatched = {} if table is None else table.meet((name for name, _ in listed), "image")

    def items() -> Iterator[Item]:
        for name, path in listed:
            own, named = ({}, None) if table is None else table.of(name)
            given = named if named is not None else path.parent.name if from_folders else label
            yield Item(name, path=path, label=given, metadata={**metadata, **own})

    found = add_items(gallery, items(), len(listed), "images", quiet=quiet)
    return {**found, "ignored": len(ignored), **unmatched}


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
