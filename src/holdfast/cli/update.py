"""``holdfast update``: the next version of one's own model, compatible with the one in use."""

from pathlib import Path

import typer

from holdfast.cli.run import DEVICE_OPTION, QUIET_OPTION, SET_OPTION
from holdfast.cli.show import JSON_OPTION
from holdfast.cli.start import DATA, EMBED, OUT, RECIPE, making, tell_version


def update(
    model: Path = typer.Option(..., "--from", metavar="MODEL", help="The model in use; it is only read."),
    data: Path = DATA,
    out: Path = OUT,
    recipe: str | None = RECIPE,
    replace_with: str | None = typer.Option(
        None, "--replace-with", metavar="BACKBONE|MODEL", help="Another network, or another model's folder."
    ),
    set_: list[str] = SET_OPTION,
    embed_buffer: bool = EMBED,
    buffer_from: Path | None = typer.Option(
        None, "--buffer-from", help="Draw the buffer anew from such data: the model has none, or lost it."
    ),
    check_on: Path | None = typer.Option(
        None, "--check-on", help="Judge by other images, such as --data takes, and hold none of --data out."
    ),
    min_gain: float = typer.Option(0.0, "--min-gain", help="Of the check, as a fraction of 1; -0.01: a point worse."),
    must_pass: bool = typer.Option(False, "--must-pass", help="Exit with 1 unless the verdict is compatible."),
    device: str = DEVICE_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Train the next version of a model, and judge it.

    The verdict says whether its queries may search what is stored already. New classes take new slots, known ones may
    have new images too, and the images the model remembers are replayed. MODEL is what the loss holds the new one to.
    It is trained as MODEL was, unless --recipe or --set says otherwise. At the end both models are compared on images
    that neither was trained on: OUT/check.json and OUT/check.html. Killed, the same command goes on.

    Example: holdfast update --from models/1 --data photos/summer --out models/2
    """
    from holdfast.lifecycle.versions import update

    with making(f"{out}", quiet=quiet or json) as watch:
        info = update(
            model,
            data,
            out,
            recipe=recipe,
            overrides=set_,
            replace_with=replace_with,
            embed_buffer=embed_buffer,
            buffer_from=buffer_from,
            check_on=check_on,
            min_gain=min_gain,
            device=device,
            watch=watch,
        )
    verdict = tell_version(out, info, json=json)
    if must_pass and verdict != "compatible":
        raise typer.Exit(1)
