"""``holdfast gallery move``, and the options that say where a server keeps a gallery."""

from pathlib import Path
from typing import Any

import typer

from holdfast.cli.gallery_moving import moved
from holdfast.cli.run import QUIET_OPTION
from holdfast.cli.show import JSON_OPTION, print_json
from holdfast.wording import are, counted

NAMESPACE_OPTION = typer.Option(
    None, "--namespace", help="On a server: begins the names of what the gallery keeps there; made up by default."
)
SHARDS_OPTION = typer.Option(None, "--shards", help="On a Qdrant cluster: parts of each collection.")
REPLICAS_OPTION = typer.Option(None, "--replicas", help="On a Qdrant cluster: copies of each part.")


def place_options(namespace: str | None, shards: int | None, replicas: int | None) -> dict[str, Any]:
    """Those that were given."""
    given = {"namespace": namespace, "shards": shards, "replicas": replicas}
    return {name: value for name, value in given.items() if value is not None}


def move(
    folder: Path = typer.Argument(..., help="The gallery's folder.", show_default=False),
    to: str = typer.Option(..., "--to", help="embedded, postgresql://..., http://... or https://..."),
    keep: bool = typer.Option(False, "--keep", help="Do not drop the vectors where they were."),
    namespace: str | None = NAMESPACE_OPTION,
    shards: int | None = SHARDS_OPTION,
    replicas: int | None = REPLICAS_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Take all vectors to another engine. They are compared before it takes over; cut short, run it again.

    A gallery that is being served is moved by the process that serves it, while it goes on answering.
    """
    options = {"to": to, "keep": keep, **place_options(namespace, shards, replicas)}
    found = moved("move", folder, options, quiet=quiet or json)
    if json:
        print_json({"gallery": str(folder), "kept": keep, **found})
        return
    total = sum(row["count"] for row in found["collections"].values())
    versions = counted(len(found["collections"]), "version")
    typer.echo(f"{folder}: {counted(total, 'vector')} of {versions} {are(total)} on {found['engine']} now")
    typer.echo("the same by count and checksum" + (f"; those on {found['from']} were kept" if keep else ""))
