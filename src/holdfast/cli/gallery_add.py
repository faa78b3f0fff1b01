"""``holdfast gallery add``: images of files and folders, or vectors of a file, with progress on stderr."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.progress import ProgressDisplay, exit_on_interrupt
from holdfast.cli.show import say
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.core.problems import Problem
    from holdfast.gallery import BaseGallery, Item, Version
    from holdfast.gallery.item_files import MetadataTable, ShardFolder, VectorFile


def add_images(
    gallery: "BaseGallery",
    paths: list[Path],
    *,
    label: str | None,
    from_folders: bool,
    metadata: dict[str, Any],
    table: "MetadataTable | None" = None,
    problem_list: Path,
    quiet: bool,
) -> dict[str, Any]:
    """Add all images below the paths; counts of added, replaced and ignored files, and the refused ones with reasons.

    table: further metadata by id; its fields override ``metadata``.
    problem_list: the CSV file that gets all refused files, if there are any.
    """
    from holdfast.core.problems import write_problems
    from holdfast.core.wording import printable
    from holdfast.embedders.image_folder import images_with_ids
    from holdfast.gallery import Item

    if label is not None and from_folders:
        raise HoldfastError("--label and --labels-from-folders both name the label; choose one")
    if table is not None and table.has_labels and (label is not None or from_folders):
        raise HoldfastError(f"{table.name} has a column label, and an option names the label too; choose one")
    listed, files = images_with_ids(paths)
    problems, ignored = files.problems, len(files.passed_over)
    if not listed:
        raise _no_images(paths, problems, ignored, problem_list)
    _refuse_shared_ids(listed)

    unmatched = {} if table is None else table.count_unmatched((name for name, _ in listed), "image")

    def items() -> Iterator[Item]:
        for name, path in listed:
            own, named = ({}, None) if table is None else table.fields_of(name)
            given = named if named is not None else path.parent.name if from_folders else label
            yield Item(name, path=path, label=given, metadata={**metadata, **own})

    found = add_items(gallery, items(), len(listed), "images", quiet=quiet)
    by_name = [{"id": printable(one.path.name), "reason": one.below(paths[0])} for one in problems]
    problems += _refused_files(found["refused"], dict(listed))
    listed_in = write_problems(problem_list, problems) if problems else None  # the list of an earlier addition stays
    return {**found, "refused": by_name + found["refused"], "ignored": ignored, "list": listed_in, **unmatched}


def _no_images(paths: list[Path], problems: "list[Problem]", ignored: int, problem_list: Path) -> HoldfastError:
    from holdfast.core.problems import problems_error, write_problems
    from holdfast.embedders.pixels import IMAGE_SUFFIXES

    if problems:
        listed = write_problems(problem_list, problems)
        return problems_error(paths[0], problems, len(problems) + ignored, listed=listed)
    kinds = f"; an image is a file named {', '.join(sorted(IMAGE_SUFFIXES))}" if ignored else ""
    return HoldfastError(f"{', '.join(str(path) for path in paths)}: no images there{kinds}")


def _refused_files(refused: list[dict[str, str]], files: dict[str, Path]) -> "list[Problem]":
    """The images that the gallery refused, without their names in the reasons."""
    from holdfast.core.problems import Problem

    return [
        Problem(
            files[one["id"]], one["reason"].removeprefix(f"item {one['id']!r}: ").removeprefix(f"{files[one['id']]}: ")
        )
        for one in refused
    ]


def _refuse_shared_ids(listed: list[tuple[str, Path]]) -> None:
    """Refuse two files with the same id: the second would replace the first."""
    seen: dict[str, Path] = {}
    for name, path in listed:
        other = seen.setdefault(name, path)
        if other.absolute() != path.absolute():
            raise HoldfastError(
                f"{other} and {path}: both would have the id {name!r}; add the folder above them, or one after a rename"
            )


def is_vector_source(paths: list[str]) -> bool:
    """Whether the paths are one file of vectors or one folder of shards; refused if there are others beside it."""
    from holdfast.core.locations import is_address, suffix
    from holdfast.gallery.item_files import VECTOR_SUFFIXES
    from holdfast.vectors.feature_shards import is_shard_folder

    def has_vectors(path: str) -> bool:
        return is_shard_folder(path) or (suffix(path) in VECTOR_SUFFIXES and not Path(path).is_dir())

    found = [path for path in paths if has_vectors(path)]
    if found and len(paths) > 1:
        raise HoldfastError(f"{found[0]}: vectors are added by a command of their own, without other paths")
    for path in paths:
        if is_address(path) and not is_shard_folder(path):
            raise HoldfastError(f"{path}: only a folder of shards is added from an object store; see holdfast embed")
    return bool(found)


def add_vectors(
    gallery: "BaseGallery",
    path: str,
    *,
    version: int | None,
    label: str | None,
    metadata: dict[str, Any],
    table: "MetadataTable | None",
    quiet: bool,
) -> dict[str, Any]:
    """Add all vectors of a file or shards; as ``add_images``, with ``ignored_columns`` by name, each with the reason.

    version: None only for shards: they name their model.
    """
    from holdfast.gallery.item_files import ShardFolder, VectorFile
    from holdfast.vectors.feature_shards import is_shard_folder

    file = ShardFolder(path) if is_shard_folder(path) else VectorFile(Path(path))
    target = _version_of(gallery, path, file, version)
    if (label is not None) + file.has_labels + (table is not None and table.has_labels) > 1:
        raise HoldfastError(f"{path}: more than one of its labels, --label and --metadata names the label; choose one")
    unmatched = {} if table is None else table.count_unmatched(file.ids(), "vector")

    def items() -> Iterator["Item"]:
        for item in file.items():
            own, named = ({}, None) if table is None else table.fields_of(item.id)
            yield replace(item, metadata={**metadata, **item.metadata, **own}, label=item.label or named or label)

    found = add_items(gallery, items(), len(file), "vectors", quiet=quiet, version=target.number)
    return {**found, "ignored": len(file.ignored), "ignored_columns": file.ignored, **unmatched}


def _version_of(gallery: "BaseGallery", path: str, file: "ShardFolder | VectorFile", number: int | None) -> "Version":
    """The version that made the vectors. Refused: one of another model or size; an unknown one.

    number: as the user says; only shards name their model for sure.
    """
    from holdfast.core.errors import unknown_name
    from holdfast.gallery.given_vectors import check_hash, check_model
    from holdfast.gallery.item_files import ShardFolder
    from holdfast.gallery.vector_sources import is_model_hash

    versions = {version.number: version for version in gallery.versions()}
    if number is None and isinstance(file, ShardFolder):
        made = [version for version in versions.values() if version.weights_sha256 == file.model]
        number = max((version.number for version in made), default=max(versions))
    if number is None:
        known = ", ".join(map(str, versions))
        raise HoldfastError(f"{path}: --version must say which version made these vectors; there are {known}")
    if number not in versions:
        raise unknown_name("version", str(number), versions)
    version = versions[number]
    (check_model if isinstance(file, ShardFolder) else check_hash)(path, file.model, version)
    may_be_input = file.width == version.input_dim and not is_model_hash(file.model)
    if may_be_input or file.width not in version.sizes:
        sizes = f"version {number} has features of {' or '.join(map(str, version.sizes))}"
        what = "may be what its model takes: run holdfast embed first" if may_be_input else "is --version right?"
        raise HoldfastError(f"{path}: vectors of {file.width} numbers, but {sizes}; {what}")
    return version


_MOST_REASONS_SHOWN = 10


def add_items(
    gallery: "BaseGallery",
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

    def tell(done: int) -> None:
        nonlocal stored
        stored = done
        line.count(done + len(refused), count)

    def note(item: "Item", error: HoldfastError) -> None:
        refused.append({"id": item.id, "reason": str(error)})

    def kept() -> str:
        return f"{stored} of {count} {what} are stored: the same command adds all of them"

    with exit_on_interrupt(kept), ProgressDisplay("add", quiet=quiet) as line:
        added = gallery.add(items, version=version, refused=note, progress=tell, replaced=replaced.append)
    return {"added": added, "replaced": sum(replaced), "refused": refused}


def print_added(folder: Path, found: dict[str, Any], *, skip: bool = False) -> None:
    """Print the result of an addition; the reasons of refusals go to stderr.

    skip: count the refused files as skipped and do not name them; they are in the list.
    """
    columns = found.get("ignored_columns")
    other = f", {found['ignored']} other files passed over" if found["ignored"] and columns is None else ""
    refused = f"{len(found['refused'])} {'skipped' if skip else 'refused'}"
    typer.echo(f"{folder}: {found['added']} added, {refused}{other}")
    if found.get("list"):
        typer.echo(f"list of files with reasons: {found['list']}")
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
    if not skip or not found.get("list"):
        _print_reasons(found["refused"], "the list has them all" if found.get("list") else "--json lists them all")


def _print_reasons(refused: list[dict[str, str]], all_in: str) -> None:
    for bad in refused[:_MOST_REASONS_SHOWN]:
        typer.echo(f"refused: {bad['reason']}", err=True)
    if len(refused) > _MOST_REASONS_SHOWN:
        typer.echo(f"... and {len(refused) - _MOST_REASONS_SHOWN} more: {all_in}", err=True)
