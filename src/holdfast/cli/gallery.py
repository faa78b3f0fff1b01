"""``holdfast gallery``: items embedded by successive models, searched by the newest."""

from pathlib import Path
from typing import Any

import typer

from holdfast.cli.gallery_engines import NAMESPACE_OPTION, REPLICAS_OPTION, SHARDS_OPTION, place_options
from holdfast.cli.gallery_versions_text import seen_from_here, sizes, verdicts
from holdfast.cli.number_lists import whole_numbers
from holdfast.cli.run import DEVICE_OPTION, QUIET_OPTION
from holdfast.cli.show import JSON_OPTION, print_json, print_table
from holdfast.wording import counted

gallery = typer.Typer(
    help="Search items of many models with the newest model.\n\nThe items stay as each model embedded them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_FOLDER = typer.Argument(..., help="The gallery's folder.", show_default=False)


@gallery.command("create")
def create(
    folder: Path = _FOLDER,
    model: Path = typer.Option(..., "--model", help="A model folder, such as RUN/models/01."),
    engine: str = typer.Option("embedded", "--engine", help="Where vectors are kept: embedded, or a server's address."),
    mode: str = typer.Option("hnsw", "--mode", help="hnsw: with an index; exact: compare every vector."),
    namespace: str | None = NAMESPACE_OPTION,
    shards: int | None = SHARDS_OPTION,
    replicas: int | None = REPLICAS_OPTION,
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Make an empty gallery whose first version is MODEL."""
    from holdfast.gallery import Gallery

    options = {"device": device, **place_options(namespace, shards, replicas)}
    with Gallery.create(folder, model, engine=engine, mode=mode, **options) as made:  # type: ignore[arg-type]
        (version,) = made.versions()
        takes = "IMAGES..." if made.vectors_taken(1).input is None else "FILE.npz --version 1"
    if json:
        print_json({"gallery": str(folder), "engine": engine, "mode": mode, "version": version.as_json()})
    else:
        typer.echo(f"{folder}: version 1 is {model}; {sizes(version)}")
        typer.echo(f"Next: holdfast gallery add {folder} {takes}")


@gallery.command("attach")
def attach(
    url: str = typer.Argument(..., help="postgresql://..., http(s)://... of Qdrant, or qdrant:FOLDER."),
    table: str = typer.Option(..., "--table", help="The table (perhaps SCHEMA.TABLE) or collection."),
    id_: str = typer.Option("id", "--id", help="The column of ids; in Qdrant id, or a payload field."),
    vector: str = typer.Option("", "--vector", help="The column of vectors; in Qdrant the name of a vector."),
    label: str | None = typer.Option(None, "--label", help="A column of classes, if there is one."),
    model: Path = typer.Option(..., "--model", help="Version 0: an adopted model, or the model that filled the store."),
    out: Path = typer.Option(..., "--out", help="A new folder for what describes the gallery."),
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Search somebody else's store in place, read-only. Nothing is copied and nothing written to it.

    Then: holdfast gallery search OUT, and holdfast gallery register OUT MODEL for a newer model. A password in URL is
    used now and not kept; later ones come from PGPASSWORD or a password file, Qdrant's key from QDRANT_API_KEY.
    """
    from holdfast.gallery import Address, AttachedGallery

    address = Address(url, table, id_, vector, label)
    with AttachedGallery.attach(out, address, model, device=device) as made:
        found = made.stats()
    if json:
        print_json({"gallery": str(out), **found})
        return
    size = counted(found["versions"][0]["stored_dim"], "number")
    typer.echo(f"{out}: {counted(found['items'], 'vector')} of {size} in {found['engine']}")
    typer.echo(f"{found['mode']}; version 0 is {model}")


@gallery.command("register")
def register(
    folder: Path = _FOLDER,
    model: Path = typer.Argument(..., help="The new model's folder."),
    force: bool = typer.Option(False, "--force", help="Even if the check calls it incompatible."),
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Make MODEL the newest version. It embeds what is added and asked from now on; nothing is embedded again.

    A gallery that is being served takes it in while it goes on answering.
    """
    from holdfast.service.served import open_or_ask

    with open_or_ask(folder, device) as opened:
        version = opened.register(model, force=force)
    if json:
        print_json(version.as_json())
        return
    typer.echo(f"{folder}: version {version.number} is {model}; {sizes(version)}")
    for check in version.checks:
        typer.echo(f"its queries on version {check['version']}: {check['verdict']} ({check['reason']})")
    if not version.checks:
        typer.echo("not checked: no older version holds items with labels and image paths")


@gallery.command("add")
def add(
    folder: Path = _FOLDER,
    paths: list[Path] = typer.Argument(
        ..., help="Images, folders of images, or one file of vectors: .npz, .npy or .parquet.", show_default=False
    ),
    labels_from_folders: bool = typer.Option(
        False, "--labels-from-folders", help="The name of an image's folder is its label."
    ),
    label: str | None = typer.Option(None, "--label", help="One label for all."),
    meta: list[str] = typer.Option([], "--meta", help="FIELD=VALUE for all; may be given again."),
    metadata: Path | None = typer.Option(
        None, "--metadata", help="A CSV file: a column id (or path), as ids are made, and a column for each field."
    ),
    version: int | None = typer.Option(None, "--version", help="Of vectors: the version that made them; needed."),
    embed: bool | None = typer.Option(
        None, "--embed/--no-embed", help="Of vectors: they are the model's input, or its features; by default by size."
    ),
    device: str = DEVICE_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Embed and store images, or store vectors that you have.

    The id of an image in a folder is its path below that folder, of a single image its file name; an id that is there
    already is replaced, and how many were is said. Files that cannot be read are named and passed over; the exit status
    is then 1.

    A file of vectors holds features, ids and, if there are, labels (as for holdfast check) and paths (of images);
    further arrays or columns become metadata. Vectors that are zero, not finite or another model's are named and
    passed over. Example: holdfast gallery add G stored.npz --version 1

    --metadata: a column of numbers becomes numbers, true and false likewise; a column label names the label. Rows
    without an item and items without a row are counted. Example: holdfast gallery add G photos/ --metadata photos.csv
    """
    from holdfast.cli.gallery_add import add_images
    from holdfast.cli.gallery_add_vectors import add_vectors, names_vectors
    from holdfast.cli.gallery_adding import tell_added
    from holdfast.errors import HoldfastError
    from holdfast.gallery.metadata_table import read_metadata
    from holdfast.service.served import open_or_ask

    vectors = names_vectors(paths)
    if vectors and labels_from_folders:
        raise HoldfastError("--labels-from-folders goes with images; vectors have their labels in the file")
    if not vectors and (version is not None or embed is not None):
        raise HoldfastError("--version and --embed go with a file of vectors; the newest version embeds images")
    given: dict[str, Any] = {
        "label": label,
        "metadata": _pairs(meta),
        "table": None if metadata is None else read_metadata(metadata),
        "quiet": quiet or json,
    }
    with open_or_ask(folder, device) as opened:
        if vectors:
            found = add_vectors(opened, paths[0], version=version, embed=embed, **given)
        else:
            found = add_images(opened, paths, from_folders=labels_from_folders, **given)
    if json:
        print_json(found)
    else:
        tell_added(folder, found)
    if found["refused"]:
        raise typer.Exit(1)


@gallery.command("search")
def search(
    folder: Path = _FOLDER,
    image: Path | None = typer.Argument(None, help="The image to look for.", show_default=False),
    id_: str | None = typer.Option(None, "--id", help="Look for what is like this item instead."),
    k: int = typer.Option(10, "--k", help="How many hits."),
    where: list[str] = typer.Option([], "--where", help="FIELD=VALUE that hits must have; may be given again."),
    indexed_by: str | None = typer.Option(
        None, "--indexed-by", metavar="N,N", help="Only items that these versions embedded, such as 1 or 1,2."
    ),
    exact: bool = typer.Option(False, "--exact", help="Compare every vector, index or not."),
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Find the items nearest to an image. All versions are searched and compared by true cosine.

    Where a new model's items crowd out those of an old one, ask version by version: with --indexed-by the newest model
    still asks, but only items that one of these versions embedded answer.
    """
    from holdfast.service.served import open_or_ask

    among = None if indexed_by is None else whole_numbers("--indexed-by", indexed_by)
    with open_or_ask(folder, device) as opened:
        hits = opened.search(image, id=id_, k=k, filter=_pairs(where), indexed_by=among, exact=exact)
    if json:
        print_json([hit.as_json() for hit in hits])
        return
    rows = [[str(n), f"{hit.score:.4f}", str(hit.version), hit.label or "", hit.id] for n, hit in enumerate(hits, 1)]
    print_table(["", "score", "version", "label", "id"], rows, right=(0, 1, 2))


@gallery.command("delete")
def delete(
    folder: Path = _FOLDER,
    ids: list[str] = typer.Argument(..., help="Ids of items.", show_default=False),
    json: bool = JSON_OPTION,
) -> None:
    """Take items out. Ids that are not there are named; the exit status is then 1."""
    from holdfast.service.served import open_or_ask

    with open_or_ask(folder) as opened:
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
def versions(folder: Path = _FOLDER, json: bool = JSON_OPTION) -> None:
    """List the models, oldest first, with the verdicts of the check. They were given at registration."""
    from holdfast.service.served import open_or_ask

    with open_or_ask(folder) as opened:
        known, counts = opened.versions(), {row["version"]: row["items"] for row in opened.stats()["versions"]}
    known = [one for one in known if one.number in counts]  # a served gallery may lose one between the two
    if json:
        print_json([{**one.as_json(), "items": counts[one.number]} for one in known])
        return
    rows = [
        [
            str(one.number),
            str(counts[one.number]),
            f"{one.stored_dim} for {one.dim}",
            one.weights_sha256[:12],
            verdicts(one) or "–",
        ]
        for one in known
    ]
    print_table(["version", "items", "numbers stored", "weights", "check"], rows, right=(0, 1))
    for one in known:  # not a column: a path and the verdicts together are wider than most screens
        typer.echo(f"version {one.number} is from {seen_from_here(one.source)}")


@gallery.command("stats")
def stats(folder: Path = _FOLDER, json: bool = JSON_OPTION) -> None:
    """Say how many items each version holds. It also says what the gallery takes up on disk."""
    from holdfast.service.served import open_or_ask

    with open_or_ask(folder) as opened:
        found = opened.stats()
    if json:
        print_json(found)
        return
    items = counted(found["items"], "item")
    typer.echo(f"{items}, {found['labelled']} with a label, {found['with_path']} with an image's path")
    typer.echo(f"engine {found['engine']}, mode {found['mode']}, {found['bytes_on_disk'] / 2**20:.1f} MiB on disk")
    typer.echo(f"fields to filter by: {', '.join(found['fields']) or 'none yet'}")
    rows = [[str(row[name]) for name in ("version", "items", "unindexed", "stored_dim")] for row in found["versions"]]
    print_table(["version", "items", "not indexed", "numbers stored"], rows, right=(0, 1, 2, 3))


def _pairs(words: list[str]) -> dict[str, Any]:
    """FIELD=VALUE as a mapping; a value that is JSON (3, true, {"lt": 20}) is read as such, any other is text."""
    import json

    from holdfast.errors import HoldfastError

    found: dict[str, Any] = {}
    for word in words:
        field, sign, text = word.partition("=")
        if not sign or not field:
            raise HoldfastError(f"{word!r}: wanted FIELD=VALUE")
        try:
            value = json.loads(text, parse_constant=lambda name: name)
        except ValueError:
            value = text
        found[field] = text if value is None else value
    return found
