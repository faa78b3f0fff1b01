"""Vectors of a file into a gallery: features of a version, or, for a model that takes vectors, what it embeds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.gallery_adding import add_items
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.gallery import AttachedGallery, Gallery, Item
    from holdfast.gallery.metadata_table import MetadataTable
    from holdfast.service.served import ServedGallery


def names_vectors(paths: list[Path]) -> bool:
    """Whether a file of vectors is named; it must then be the only one."""
    from holdfast.gallery.vector_file import VECTOR_SUFFIXES

    found = [path for path in paths if path.suffix.lower() in VECTOR_SUFFIXES and not path.is_dir()]
    if found and len(paths) > 1:
        raise HoldfastError(f"{found[0]}: a file of vectors is added by a command of its own")
    return bool(found)


def add_vectors(
    gallery: "Gallery | AttachedGallery | ServedGallery",
    path: Path,
    *,
    version: int | None,
    embed: bool | None,
    label: str | None,
    metadata: dict[str, Any],
    table: "MetadataTable | None",
    quiet: bool,
) -> dict[str, Any]:
    """Add every vector there is; as for images, with ``ignored_columns`` by name, each with the reason."""
    from holdfast.gallery.vector_file import VectorFile

    if version is None:
        known = ", ".join(str(one.number) for one in gallery.versions())
        raise HoldfastError(f"{path}: --version must say which version made these vectors; there are {known}")
    taken = gallery.vectors_taken(version)
    file = VectorFile(path)
    if (label is not None) + file.has_labels + (table is not None and table.has_labels) > 1:
        raise HoldfastError(f"{path}: more than one of its labels, --label and --metadata names the label; choose one")
    as_input = taken.embedded(file.width, embed, str(path))
    unmatched = {} if table is None else table.meet(file.ids(), "vector")

    def items() -> Iterator["Item"]:
        for item in file.items(embed=as_input):
            own, named = ({}, None) if table is None else table.of(item.id)
            yield replace(item, metadata={**metadata, **item.metadata, **own}, label=item.label or named or label)

    found = add_items(gallery, items(), len(file), "vectors", quiet=quiet, version=version)
    return {**found, "ignored": len(file.ignored), "ignored_columns": file.ignored, **unmatched}
