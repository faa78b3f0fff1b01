"""``holdfast gallery backfill`` and ``rollback``, and how all that moves shows its progress on stderr."""

import sys
import threading
import time
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.progress import LINE_SECONDS, clock
from holdfast.cli.run import DEVICE_OPTION, QUIET_OPTION
from holdfast.cli.show import JSON_OPTION, per_cent, print_json, print_table
from holdfast.wording import counted

_FOLDER = typer.Argument(..., help="The gallery's folder.", show_default=False)
_RATE = typer.Option(None, "--rate", help="At most so many items a second.", show_default="as fast as it goes")


def backfill(
    folder: Path = _FOLDER,
    to: int | None = typer.Option(None, "--to", help="The version to move to.", show_default="the newest"),
    order: str = typer.Option("oldest", "--order", help="oldest or most-hit first."),
    rate: float | None = _RATE,
    limit: int | None = typer.Option(None, "--limit", help="At most so many items in all.", show_default="all"),
    probes: int = typer.Option(200, "--probes", help="Labelled images that measure accuracy on the way; 0 for none."),
    device: str = DEVICE_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Embed items of older versions again, by a newer one. Their images are read for it.

    Interrupt it when you like: what has moved stays, and the same command goes on. Items without an image at hand stay
    where they are, as searchable as before.
    """
    options = {"to": to, "order": order, "rate": rate, "limit": limit, "probes": probes}
    found = moved("backfill", folder, options, device=device, quiet=quiet or json)
    if json:
        print_json(found)
    else:
        _summarise(folder, found)


def rollback(
    folder: Path = _FOLDER,
    drop: bool = typer.Option(False, "--drop", help="Delete items that cannot be embedded again."),
    cancel: bool = typer.Option(False, "--cancel", help="Let a version that is half taken out stay, as the newest."),
    rate: float | None = _RATE,
    device: str = DEVICE_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Take the newest version out. The one before it asks from now on and embeds its items again, from their images.

    Refused, with nothing changed, if items have no image at hand. Interrupted, the same command goes on.
    """
    options = {"drop": drop, "cancel": cancel, "rate": rate}
    done = moved("rollback", folder, options, device=device, quiet=quiet or json)
    if json:
        print_json(done)
    elif cancel:
        typer.echo(f"{folder}: version {done['cancelled']} stays and is the newest")
    else:
        typer.echo(f"{folder}: version {done['version']} is out, version {done['newest']} is the newest")
        typer.echo(f"{counted(done['moved'], 'item')} embedded again, {done['dropped']} dropped")


def moved(verb: str, folder: Path, options: dict[str, Any], *, device: str = "auto", quiet: bool) -> dict[str, Any]:
    """Have it done by the process that serves the gallery, or here, on ``device``, where none does; what came of it."""
    from holdfast.gallery import open_gallery
    from holdfast.service.commands import COMMANDS
    from holdfast.service.control import ask_server, is_served
    from holdfast.service.served import refuse_device

    if is_served(folder):
        refuse_device(folder, device)
    shown = Shown(verb, quiet=quiet)
    try:
        done = ask_server(folder, verb, tell=shown.tell, **options)
        if done is None:
            with open_gallery(folder, device=device) as opened:
                done = COMMANDS[verb](opened, threading.Event(), shown.tell, **options)
    except KeyboardInterrupt:
        typer.echo(f"holdfast: stopped; what has moved stays: {verb} again goes on", err=True)
        raise typer.Exit(130) from None
    shown.clear()
    return dict(done)


class Shown:
    """One line that is drawn over in a terminal, elsewhere a line now and then."""

    def __init__(self, verb: str, *, quiet: bool) -> None:
        self._verb, self._quiet, self._terminal = verb, quiet, sys.stderr.isatty()
        self._printed = time.monotonic()

    def tell(self, figures: dict[str, Any]) -> None:
        now = time.monotonic()
        if self._quiet or (now - self._printed < LINE_SECONDS and not self._terminal):
            return
        self._printed = now
        if "copied" in figures:  # a move to another engine
            parts = [f"{counted(figures['copied'], 'vector')} copied", f"{figures['rate']:.0f} a second"]
        else:
            left = "" if figures["seconds_left"] is None else f"{clock(figures['seconds_left'])} left"
            share = f"{per_cent(figures['share'])} % backfilled" if "share" in figures else ""
            parts = [f"{figures['moved']} of {figures['total']}", share, f"{figures['rate']:.1f} items/s", left]
        line = f"{self._verb}: {', '.join(part for part in parts if part)}"
        sys.stderr.write(f"\r{line}\x1b[K" if self._terminal else f"{line}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        if not self._quiet and self._terminal:
            sys.stderr.write("\r\x1b[K")


def _summarise(folder: Path, done: dict[str, Any]) -> None:
    items = counted(done["moved"], "item")
    typer.echo(f"{folder}: {items} moved to version {done['to']} at {done['rate']:.1f} items/s")
    stay = f"{done['left']} still to move, {done['without_image']} without an image, {done['unreadable']} unreadable"
    typer.echo(f"{per_cent(done['share'])} % backfilled; {stay}")
    for bad in done["reasons"]:
        typer.echo(f"unreadable: {bad['reason']}", err=True)
    if done["accuracy"]:
        rows = [[per_cent(point["share"]), per_cent(point["accuracy"])] for point in done["accuracy"]]
        print_table(["backfilled %", "accuracy %"], rows, right=(0, 1))
        typer.echo("Accuracy: labelled images whose nearest labelled item, itself left out, has their label.")
