"""``holdfast gallery backfill``, ``rollback`` and ``move``: work on all items of a gallery, which can be resumed."""

import time
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.gallery_verbs import FOLDER, gallery
from holdfast.cli.options import JSON_OPTION, refuse_given
from holdfast.cli.progress import ProgressDisplay, exit_on_interrupt
from holdfast.cli.show import print_json
from holdfast.core.wording import are, counted, per_cent

_RATE = typer.Option(None, "--rate", help="At most so many items a second.", show_default="as fast as it goes")


@gallery.command("backfill")
def backfill(
    folder: Path = FOLDER,
    to: int | None = typer.Option(None, "--to", help="The version to move to.", show_default="the newest"),
    rate: float | None = _RATE,
    limit: int | None = typer.Option(None, "--limit", help="At most so many items in all.", show_default="all"),
    new_vectors: str | None = typer.Option(
        None, "--new-vectors", help="Vectors by id instead of images: a folder of shards, .npz, .npy or .parquet."
    ),
    json: bool = JSON_OPTION,
) -> None:
    """Re-embed items of older versions by a newer version.

    The items that the bridge serves worst come first. It can be interrupted: finished items are kept, and the same
    command resumes. Items without an image stay in their version and remain searchable.

    --new-vectors takes what "holdfast embed" wrote with the version's model; items are matched by id and need no image.

    Example: holdfast gallery backfill shop --rate 20
    """
    from holdfast.gallery import Backfill
    from holdfast.service.served_gallery import open_local_or_served

    def progress(state: Backfill) -> None:
        line.show({**state.progress.figures(), "share": state.share})

    with exit_on_interrupt(), ProgressDisplay("backfill", quiet=json) as line, open_local_or_served(folder) as opened:
        found = opened.backfill(to, rate=rate, limit=limit, vectors=new_vectors, progress=progress).as_json()
    if json:
        print_json(found)
    else:
        _print_backfill(folder, found)


@gallery.command("rollback")
def rollback(
    context: typer.Context,
    folder: Path = FOLDER,
    drop: bool = typer.Option(False, "--drop", help="Delete items that cannot be embedded again."),
    cancel: bool = typer.Option(False, "--cancel", help="Stop an unfinished rollback: keep the version as the newest."),
    rate: float | None = _RATE,
    json: bool = JSON_OPTION,
) -> None:
    """Remove the newest version. The one before it embeds queries, and re-embeds its items from their images.

    Refused, with nothing changed, if items have no image. After an interruption the same command resumes.

    Example: holdfast gallery rollback shop
    """
    if cancel:
        refuse_given(context, ("drop", "rate"), "does not go with --cancel, which re-embeds and deletes nothing")
    from holdfast.service.served_gallery import open_local_or_served

    with exit_on_interrupt(), ProgressDisplay("rollback", quiet=json) as line, open_local_or_served(folder) as opened:
        done = opened.rollback(drop=drop, cancel=cancel, rate=rate, progress=lambda state: line.show(state.figures()))
    if json:
        print_json(done)
    elif cancel:
        typer.echo(f"{folder}: version {done['cancelled']} stays and is the newest")
    elif done["finished"]:
        typer.echo(f"{folder}: version {done['version']} was removed, version {done['newest']} is the newest")
        typer.echo(f"{counted(done['moved'], 'item')} embedded again, {done['dropped']} dropped")
    else:
        moved = f"{counted(done['moved'], 'item')} embedded again"
        typer.echo(f"{folder}: the rollback of version {done['version']} was stopped, {moved}", err=True)
        typer.echo("run rollback again to resume, or with --cancel to keep the version", err=True)
    if not cancel and not done["finished"]:
        raise typer.Exit(1)


@gallery.command("move")
def move(
    folder: Path = FOLDER,
    to: str = typer.Option(..., "--to", help="embedded or postgresql://..."),
    keep: bool = typer.Option(False, "--keep", help="Do not drop the vectors where they were."),
    json: bool = JSON_OPTION,
) -> None:
    """Move all vectors to another engine. Both are compared before it takes over.

    Stop the service of the gallery first: no other process may have it open meanwhile.

    Example: holdfast gallery move shop --to postgresql://host/galleries
    """
    from holdfast.gallery import Gallery

    copied, started = 0, time.monotonic()

    def progress(more: int) -> None:
        nonlocal copied
        copied += more
        line.show({"copied": copied, "rate": copied / max(time.monotonic() - started, 1e-9)})

    with exit_on_interrupt(), ProgressDisplay("move", quiet=json) as line:
        found = Gallery.move(folder, to, keep=keep, progress=progress)
    if json:
        print_json({"gallery": str(folder), "kept": keep, "copied": copied, **found})
        return
    total = sum(row["count"] for row in found["collections"].values())
    versions = counted(len(found["collections"]), "version")
    typer.echo(f"{folder}: {counted(total, 'vector')} of {versions} {are(total)} on {found['engine']} now")
    typer.echo("the same by count and checksum" + (f"; those on {found['from']} were kept" if keep else ""))


def _print_backfill(folder: Path, done: dict[str, Any]) -> None:
    items = counted(done["moved"], "item")
    typer.echo(f"{folder}: {items} moved to version {done['to']} at {done['rate']:.1f} items/s")
    without = f"{done['without_image']} without an image"
    if done["without_vector"] is not None:
        without = f"{done['without_vector']} without a vector"
    stay = f"{done['left']} still to move, {without}, {done['unreadable']} unreadable"
    typer.echo(f"{per_cent(done['share'])} % backfilled; {stay}")
    for bad in done["reasons"]:
        typer.echo(f"unreadable: {bad['reason']}", err=True)
