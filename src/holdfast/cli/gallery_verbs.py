"""``holdfast gallery``: create, fill and search a gallery; ``gallery_maintenance`` has backfill, rollback and move.

Commands go to the process that serves the gallery, if there is one; otherwise the gallery is opened here.
"""

import shlex
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import JSON_OPTION, int_list
from holdfast.cli.progress import ProgressDisplay, exit_on_interrupt
from holdfast.cli.show import print_json, print_table, say
from holdfast.cli.version_text import (
    EXPOSURE_TEXT,
    describe_bridge,
    describe_checks,
    describe_sizes,
    print_bridges,
    print_checks,
)
from holdfast.core.wording import counted

gallery = typer.Typer(
    help="Keep an index (gallery) of several models, searched by the newest model.\n\n"
    "Items are re-embedded only by backfill and rollback.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
FOLDER = typer.Argument(..., metavar="GALLERY", help="The gallery's folder.", show_default=False)


@gallery.command("create")
def create(
    folder: Path = FOLDER,
    model: Path | None = typer.Option(None, "--model", help="A model folder, such as models/1 or RUN/models/01."),
    vectors: str | None = typer.Option(
        None, "--vectors", metavar="FILE", help="Without a model: vectors that something else made; gives their size."
    ),
    engine: str = typer.Option("embedded", "--engine", help="Where vectors are kept: embedded, or a server's address."),
    json: bool = JSON_OPTION,
) -> None:
    """Create an empty gallery of MODEL, or of vectors alone.

    Example: holdfast gallery create shop --model models/1

    Example: holdfast gallery create shop --vectors old.npz
    """
    from holdfast.gallery import Gallery

    with Gallery.create(folder, model, vectors=vectors, engine=engine) as made:
        (version,) = made.versions()
    takes = "IMAGES..." if version.embeds == "images" else f"{shlex.quote(vectors or 'FILE.npz')} --version 1"
    if json:
        print_json({"gallery": str(folder), "engine": engine, "version": version.as_json()})
    else:
        typer.echo(f"{folder}: version 1 is {_called(model)}; {describe_sizes(version)}")
        typer.echo(f"Next: holdfast gallery add {shlex.quote(str(folder))} {takes}")


@gallery.command("attach")
def attach(
    url: str = typer.Argument(..., metavar="URL", help="postgresql://..., http(s)://... of Qdrant, or qdrant:FOLDER."),
    table: str = typer.Option(..., "--table", help="The table (perhaps SCHEMA.TABLE) or collection."),
    id_: str = typer.Option("id", "--id", help="The column of ids; in Qdrant id, or a payload field."),
    vector: str = typer.Option("", "--vector", help="The column of vectors; in Qdrant the name of a vector."),
    label: str | None = typer.Option(None, "--label", help="A column of classes, if there is one."),
    model: Path | None = typer.Option(None, "--model", help="The Holdfast model that filled the store, if one did."),
    out: Path = typer.Option(..., "--out", help="A new folder for what describes the gallery."),
    json: bool = JSON_OPTION,
) -> None:
    """Search an existing vector store in place, read-only. Nothing is copied and nothing written to it.

    Then: holdfast gallery register OUT --new-vectors FILE for a newer model. A password in URL is used now and not
    kept; later ones come from PGPASSWORD or a password file, Qdrant's key from QDRANT_API_KEY.

    Example: holdfast gallery attach postgresql://host/shop --table items --vector embedding --out shop
    """
    from holdfast.gallery import Address, AttachedGallery

    address = Address(url, table, id_, vector, label)
    with AttachedGallery.attach(out, address, model) as made:
        found = made.stats()
    if json:
        print_json({"gallery": str(out), **found})
        return
    size = counted(found["versions"][0]["stored_dim"], "number")
    typer.echo(f"{out}: {counted(found['items'], 'vector')} of {size} in {found['engine']}")
    typer.echo(f"read-only, {found['index']}; version 0 is {_called(model)}")


@gallery.command("register")
def register(
    folder: Path = FOLDER,
    model: Path | None = typer.Argument(
        None,
        metavar="[MODEL]",
        help="The new model's folder; none: a version of the new vectors alone.",
        show_default=False,
    ),
    force: bool = typer.Option(
        False,
        "--force",
        help="Register a model that the check refuses or, in an attached gallery, that no bridge connects.",
    ),
    bridge: str = typer.Option("auto", "--bridge", help="auto, none, a kind such as rotation, or a bridge's folder."),
    bridge_pairs: int = typer.Option(
        2000, "--bridge-pairs", help="At most so many items of each older version are embedded for its bridge."
    ),
    new_vectors: Path | None = typer.Option(
        None, "--new-vectors", help="The new model's vectors of some items, by id; instead of images."
    ),
    old_vectors: Path | None = typer.Option(
        None, "--old-vectors", help="The old model's vectors of other things in --new-vectors, such as queries."
    ),
    json: bool = JSON_OPTION,
) -> None:
    """Make MODEL, or vectors alone, the newest version. Its model embeds new items and queries; stored items stay.

    A bridge to each older version is fitted on items that both models embedded. It carries MODEL's queries into that
    version's space; stored vectors stay as they are. Held-out items decide which kind is used, or none. Kinds:
    rotation, affine, local.

    The expected exposure of a version's items says how often they are among the first hits: 1 = as often as after
    re-embedding everything, 0 = never.

    If a process serves the gallery, that process registers the model, and continues to answer searches.

    Example: holdfast gallery register shop models/2

    Example: holdfast gallery register shop --new-vectors new.npz
    """
    from holdfast.service.served_gallery import open_local_or_served

    def progress(stage: str, done: int, total: int) -> None:
        line.show({"stage": stage, "done": done, "total": total})

    with (
        exit_on_interrupt(f"holdfast gallery versions {folder} shows whether the model is registered"),
        ProgressDisplay("register", quiet=json) as line,
        open_local_or_served(folder) as opened,
    ):
        older = opened.stats()["versions"]
        version = opened.register(
            model,
            force=force,
            bridge=bridge,
            bridge_pairs=bridge_pairs,
            new_vectors=new_vectors,
            old_vectors=old_vectors,
            progress=progress,
        )
    if json:
        print_json(version.as_json())
        return
    typer.echo(f"{folder}: version {version.number} is {_called(model)}; {describe_sizes(version)}")
    for note in version.notes:
        say(note)
    print_checks(version)
    if not version.checks:
        typer.echo("not checked: no older version holds items with labels and image paths")
    with_items = [one["version"] for one in older if one["items"]] if bridge != "none" else []
    print_bridges(version, with_items, attached=older[0]["version"] == 0)


@gallery.command("add")
def add(
    folder: Path = FOLDER,
    paths: list[str] = typer.Argument(
        ...,
        metavar="PATHS",
        help="Images, folders of images, one file of vectors (.npz, .npy, .parquet), or a folder of shards.",
        show_default=False,
    ),
    labels_from_folders: bool = typer.Option(
        False, "--labels-from-folders", help="The name of an image's folder is its label."
    ),
    label: str | None = typer.Option(None, "--label", help="One label for all."),
    meta: list[str] = typer.Option([], "--meta", metavar="FIELD=VALUE", help="For all items; may be given again."),
    metadata: Path | None = typer.Option(
        None, "--metadata", help="A CSV file: a column id (or path), as ids are made, and a column for each field."
    ),
    version: int | None = typer.Option(
        None, "--version", help="Of vectors: the version that made them; needed, but not for shards."
    ),
    skip_unreadable: bool = typer.Option(
        False, "--skip-unreadable", help="Exit with 0 although some images cannot be used; a list of them is written."
    ),
    json: bool = JSON_OPTION,
) -> None:
    """Embed and store images, or store vectors that you have.

    The id of an image in a folder is its path below that folder; the id of a single image is its file name. An item
    with an existing id is replaced. Images that cannot be used are not added. They are named and listed with reasons in
    GALLERY.unreadable.csv beside the gallery. The exit status is then 1, or 0 with --skip-unreadable.

    A file of vectors holds features, ids and, optionally, labels (as for holdfast check) and paths (of images);
    further arrays or columns become metadata. Vectors that are zero, not finite or another model's are named and
    skipped. Example: holdfast gallery add G stored.npz --version 1

    A folder of shards, written by holdfast embed --out FOLDER, names its model; its vectors go to that version.

    --metadata: a column of numbers becomes numbers, true and false likewise; a column label names the label. Rows
    without an item and items without a row are counted. Example: holdfast gallery add G photos/ --metadata photos.csv
    """
    from holdfast.cli.gallery_add import add_images, add_vectors, is_vector_source, print_added
    from holdfast.core.errors import HoldfastError
    from holdfast.core.locations import local_path
    from holdfast.core.problems import problem_file
    from holdfast.gallery.item_files import read_metadata
    from holdfast.service.served_gallery import open_local_or_served

    vectors = is_vector_source(paths)
    if vectors and labels_from_folders:
        raise HoldfastError("--labels-from-folders goes with images; vectors have their labels in the file")
    if vectors and skip_unreadable:
        raise HoldfastError("--skip-unreadable goes with images; vectors that cannot be used are always skipped")
    if not vectors and version is not None:
        raise HoldfastError("--version goes with a file of vectors; the newest version embeds images")
    given: dict[str, Any] = {
        "label": label,
        "metadata": _parse_metadata(meta),
        "table": None if metadata is None else read_metadata(metadata),
        "quiet": json,
    }
    with open_local_or_served(folder) as opened:
        if vectors:
            found = add_vectors(opened, paths[0], version=version, **given)
        else:
            listed = problem_file(folder)
            images = [local_path(path) for path in paths]
            found = add_images(opened, images, from_folders=labels_from_folders, problem_list=listed, **given)
    if json:
        print_json(found)
    else:
        print_added(folder, found, skip=skip_unreadable)
    if found["refused"] and not (skip_unreadable and found["added"]):
        raise typer.Exit(1)


@gallery.command("search")
def search(
    folder: Path = FOLDER,
    query: Path | None = typer.Argument(
        None, metavar="QUERY", help="The image to look for, or a vector in a file .npy.", show_default=False
    ),
    id_: str | None = typer.Option(None, "--id", help="Look for what is like this item instead."),
    k: int = typer.Option(10, "--k", help="How many hits."),
    offset: int = typer.Option(0, "--offset", help="Leave out so many of the best hits, for the next page."),
    where: list[str] = typer.Option(
        [],
        "--where",
        metavar="FIELD=VALUE",
        help="What hits must have; may be given again, for other fields or bounds.",
    ),
    indexed_by: str | None = typer.Option(
        None, "--indexed-by", metavar="N,N", help="Only items that these versions embedded, such as 1 or 1,2."
    ),
    exact: bool = typer.Option(False, "--exact", help="Compare every vector, index or not."),
    json: bool = JSON_OPTION,
) -> None:
    """Find the items nearest to an image, a vector or an item. All versions are searched, and hits ranked by score.

    The score is the cosine. Cosines of a version with a bridge are put on the scale of the newest version first, and
    the cosine is then shown too. --indexed-by returns only items that these versions embedded; the newest model still
    embeds the query. A vector is one of the newest version.

    Example: holdfast gallery search shop query.jpg --k 5
    """
    from holdfast.core.errors import HoldfastError
    from holdfast.core.storage import read_array
    from holdfast.service.served_gallery import open_local_or_served

    if (query is None) == (id_ is None):
        raise HoldfastError("give the image to look for, or --id ID" + ("" if query is None else ", not both"))
    vector = None if query is None or query.suffix.lower() != ".npy" else read_array(query).squeeze()
    image = query if vector is None else None
    among = None if indexed_by is None else int_list("--indexed-by", indexed_by)
    with open_local_or_served(folder) as opened:
        hits = opened.search(
            image,
            vector=vector,
            id=id_,
            k=k,
            filter=_parse_conditions(where),
            indexed_by=among,
            exact=exact,
            offset=offset,
        )
    if json:
        print_json([hit.as_json() for hit in hits])
        return
    # The cosine is a column of its own only where scores of a version were put on another scale.
    scaled = any(abs(hit.score - hit.cosine) > 1e-6 for hit in hits)
    rows = [
        [
            str(n),
            f"{hit.score:.4f}",
            *([f"{hit.cosine:.4f}"] if scaled else []),
            str(hit.version),
            hit.label or "",
            hit.id,
        ]
        for n, hit in enumerate(hits, offset + 1)
    ]
    columns = ["", "score", *(["cosine"] if scaled else []), "version", "label", "id"]
    print_table(columns, rows, right=(0, 1, 2, 3) if scaled else (0, 1, 2))


@gallery.command("delete")
def delete(
    folder: Path = FOLDER,
    ids: list[str] = typer.Argument(..., metavar="IDS", help="Ids of items.", show_default=False),
    json: bool = JSON_OPTION,
) -> None:
    """Remove items. Unknown ids are named; the exit status is then 1.

    Example: holdfast gallery delete shop cats/1.jpg
    """
    from holdfast.service.served_gallery import open_local_or_served

    with open_local_or_served(folder) as opened:
        gone = opened.delete(ids)
    unknown = [one for one in dict.fromkeys(ids) if one not in set(gone)]
    if json:
        print_json({"deleted": gone, "unknown": unknown})
    else:
        typer.echo(f"{folder}: {len(gone)} deleted")
        for one in unknown:
            typer.echo(f"not there: {one}", err=True)
    if unknown:
        raise typer.Exit(1)


@gallery.command("versions")
def versions(folder: Path = FOLDER, json: bool = JSON_OPTION) -> None:
    """List the models, oldest first, with their checks and bridges.

    Example: holdfast gallery versions shop
    """
    from holdfast.service.served_gallery import open_local_or_served

    with open_local_or_served(folder) as opened:
        known, found = opened.versions(), opened.stats()
    counts = {row["version"]: row["items"] for row in found["versions"]}
    known = [one for one in known if one.number in counts]  # a rollback may remove one between the two calls
    if json:
        print_json([{**one.as_json(), "items": counts[one.number]} for one in known])
        return
    rows = [
        [
            str(one.number),
            str(counts[one.number]),
            f"{one.stored_dim} for {one.dim}",
            one.weights_sha256[:12],
            describe_checks(one) or "–",
        ]
        for one in known
    ]
    print_table(["version", "items", "numbers stored", "weights", "check"], rows, right=(0, 1))
    if found["rolling_back"] is not None:
        typer.echo(_ROLLING_BACK.format(found["rolling_back"], folder))
    for one in known:  # not a column: a path and the verdicts together are wider than most screens
        typer.echo(f"version {one.number} is from {relative_to_cwd(one.source)}")
    for one in known:
        print_checks(one)
    for one in known:
        if one.bridges:
            typer.echo(f"bridges of version {one.number}:")
            print_bridges(one)


@gallery.command("stats")
def stats(folder: Path = FOLDER, json: bool = JSON_OPTION) -> None:
    """Show how many items each version holds, and the size on disk.

    Example: holdfast gallery stats shop
    """
    from holdfast.service.served_gallery import open_local_or_served

    with open_local_or_served(folder) as opened:
        found = opened.stats()
    if json:
        print_json(found)
        return
    items = counted(found["items"], "item")
    typer.echo(f"{items}, {found['labelled']} with a label, {found['with_path']} with an image's path")
    index = f", {found['index']}" if "index" in found else ""
    say(f"engine {found['engine']}{index}, {found['bytes_on_disk'] / 2**20:.1f} MiB on disk")
    typer.echo(f"fields to filter by: {', '.join(found['fields']) or 'none yet'}")
    rows = [[str(row[name]) for name in ("version", "items", "unindexed", "stored_dim")] for row in found["versions"]]
    print_table(["version", "items", "not indexed", "numbers stored"], rows, right=(0, 1, 2, 3))
    if found["rolling_back"] is not None:
        typer.echo(_ROLLING_BACK.format(found["rolling_back"], folder))
    (newest,) = [row for row in found["versions"] if row["version"] == found["newest"]]
    if newest.get("bridges"):
        typer.echo(f"queries of version {newest['version']} on items of older versions:")
        for record in newest["bridges"]:
            typer.echo("\n".join(describe_bridge(record)))
        if any(record["exposure"] for record in newest["bridges"]):
            typer.echo(EXPOSURE_TEXT)


def _called(model: Path | None) -> str:
    return "of vectors alone" if model is None else str(model)


_ROLLING_BACK = "version {0} is being removed: holdfast gallery rollback {1} continues, with --cancel keeps it"


def _parse_metadata(words: list[str]) -> dict[str, Any]:
    from holdfast.core.errors import HoldfastError

    found: dict[str, Any] = {}
    for word in words:
        field, value = _parse_pair(word)
        if field in found:
            raise HoldfastError(f"{word!r}: {field} is given twice")
        found[field] = value
    return found


def _parse_conditions(words: list[str]) -> dict[str, Any]:
    """A filter. Bounds of one field, such as price={"gt": 5} and price={"lt": 20}, are combined. Labels are text."""
    from holdfast.core.errors import HoldfastError

    found: dict[str, Any] = {}
    for word in words:
        field, value = _parse_pair(word)
        if field == "label" and not isinstance(value, str | list | dict):
            value = word.partition("=")[2]
        earlier = found.get(field, {})
        are_bounds = isinstance(value, dict) and isinstance(earlier, dict)
        if field in found and not (are_bounds and value.keys().isdisjoint(earlier)):
            reason = f"{field} has a condition already; a list, such as {field}=[1, 2], means any of"
            raise HoldfastError(f"{word!r}: {reason}")
        found[field] = {**earlier, **value} if are_bounds else value
    return found


def _parse_pair(word: str) -> tuple[str, Any]:
    """Parse FIELD=VALUE; a value that is JSON (3, true, {"lt": 20}) is read as JSON, any other is text."""
    import json

    from holdfast.core.errors import HoldfastError

    field, sign, text = word.partition("=")
    if not sign or not field:
        raise HoldfastError(f"{word!r}: wanted FIELD=VALUE")
    try:
        value = json.loads(text, parse_constant=lambda name: name)
    except ValueError:
        value = text
    return field, text if value is None else value


def relative_to_cwd(path: str) -> str:
    """The path relative to the current folder, if it is below it."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
