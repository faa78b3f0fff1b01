"""``holdfast gallery backfill``, ``rollback`` and ``move``: work on all items of a gallery, which can be resumed."""

import threading
import time
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.gallery import (
    FOLDER,
    NAMESPACE_OPTION,
    REPLICAS_OPTION,
    SHARDS_OPTION,
    gallery,
    server_options,
)
from holdfast.cli.options import DEVICE_OPTION, JSON_OPTION, QUIET_OPTION, refuse_given
from holdfast.cli.progress import ProgressLine, exit_on_interrupt
from holdfast.cli.show import print_json, print_table, say
from holdfast.core.wording import are, counted, per_cent

_RATE = typer.Option(None, "--rate", help="At most so many items a second.", show_default="as fast as it goes")


@gallery.command("backfill")
def backfill(
    folder: Path = FOLDER,
    to: int | None = typer.Option(None, "--to", help="The version to move to.", show_default="the newest"),
    order: str = typer.Option("oldest", "--order", help="oldest, most-hit or uncertain (by the bridge) first."),
    rate: float | None = _RATE,
    limit: int | None = typer.Option(None, "--limit", help="At most so many items in all.", show_default="all"),
    probes: int = typer.Option(200, "--probes", help="Labelled images that measure accuracy on the way; 0 for none."),
    new_vectors: str | None = typer.Option(
        None, "--new-vectors", help="Vectors by id instead of images: a folder of shards, .npz, .npy or .parquet."
    ),
    ray: str | None = typer.Option(None, "--ray", metavar="ADDRESS", help="Embed on a Ray cluster, or auto."),
    device: str = DEVICE_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Re-embed items of older versions by a newer version.

    It can be interrupted: finished items are kept, and the same command resumes. Items without an image stay in their
    version and remain searchable.

    --new-vectors takes what "holdfast embed" wrote with the version's model; items are matched by id and need no image.
    --ray embeds the images on a Ray cluster; auto is the one on this machine, or a new one.

    Example: holdfast gallery backfill shop --order uncertain --rate 20
    """
    from holdfast.core.errors import HoldfastError
    from holdfast.core.locations import absolute

    options: dict[str, Any] = {"to": to, "order": order, "rate": rate, "limit": limit, "probes": probes}
    if ray is not None and new_vectors is not None:
        raise HoldfastError("--ray embeds images, and --new-vectors are embedded already; choose one")
    if ray is not None:
        options["ray"] = ray
    if new_vectors is not None:
        options["vectors"] = absolute(new_vectors)
    found = run_maintenance("backfill", folder, options, device=device, quiet=quiet or json)
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
    device: str = DEVICE_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Remove the newest version. The one before it embeds queries, and re-embeds its items from their images.

    Refused, with nothing changed, if items have no image. After an interruption the same command resumes.

    Example: holdfast gallery rollback shop
    """
    if cancel:
        refuse_given(context, ("drop", "rate"), "does not go with --cancel, which re-embeds and deletes nothing")
    options = {"drop": drop, "cancel": cancel, "rate": rate}
    done = run_maintenance("rollback", folder, options, device=device, quiet=quiet or json)
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
    to: str = typer.Option(..., "--to", help="embedded, postgresql://..., http://... or https://..."),
    keep: bool = typer.Option(False, "--keep", help="Do not drop the vectors where they were."),
    namespace: str | None = NAMESPACE_OPTION,
    shards: int | None = SHARDS_OPTION,
    replicas: int | None = REPLICAS_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Move all vectors to another engine. Both are compared before it takes over; run it again to resume.

    Stop the service of the gallery first: no other process may have it open meanwhile.

    Example: holdfast gallery move shop --to postgresql://host/galleries
    """
    from holdfast.gallery import Gallery

    copied, started = 0, time.monotonic()

    def progress(more: int) -> None:
        nonlocal copied
        copied += more
        line.show({"copied": copied, "rate": copied / max(time.monotonic() - started, 1e-9)})

    options = server_options(namespace, shards, replicas)
    with exit_on_interrupt(), ProgressLine("move", quiet=quiet or json) as line:
        found = Gallery.move(folder, to, keep=keep, progress=progress, **options)
    if json:
        print_json({"gallery": str(folder), "kept": keep, "copied": copied, **found})
        return
    total = sum(row["count"] for row in found["collections"].values())
    versions = counted(len(found["collections"]), "version")
    typer.echo(f"{folder}: {counted(total, 'vector')} of {versions} {are(total)} on {found['engine']} now")
    typer.echo("the same by count and checksum" + (f"; those on {found['from']} were kept" if keep else ""))


def run_maintenance(
    verb: str, folder: Path, options: dict[str, Any], *, device: str = "auto", quiet: bool
) -> dict[str, Any]:
    """Run a backfill or rollback in the process that serves the gallery, or here on ``device``; its result."""
    from holdfast.gallery import open_gallery
    from holdfast.service.admin_tasks import TASKS
    from holdfast.service.served_gallery import check_device_option, is_served, run_on_server

    if is_served(folder):
        check_device_option(folder, device)
    with exit_on_interrupt(), ProgressLine(verb, quiet=quiet) as line:
        done = run_on_server(folder, verb, on_progress=line.show, **options)
        if done is None:
            with open_gallery(folder, device=device) as opened:
                done = TASKS[verb](opened, threading.Event(), line.show, **options)
    return dict(done)


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
    if done["accuracy"]:
        rows = [[per_cent(point["share"]), per_cent(point["accuracy"])] for point in done["accuracy"]]
        print_table(["backfilled %", "accuracy %"], rows, right=(0, 1))
        say("Accuracy: labelled images whose nearest labelled item, itself left out, has their label.")
