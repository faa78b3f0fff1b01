"""``holdfast start``: version 1 of one's own model, from a folder of images or a file of vectors."""

from pathlib import Path

import typer

from holdfast.cli.run import DEVICE_OPTION, QUIET_OPTION, SET_OPTION
from holdfast.cli.show import JSON_OPTION
from holdfast.cli.version_text import making, tell_version

DATA = typer.Option(..., "--data", help="A folder of images per class, a CSV of path,label, or vectors (npz, parquet).")
OUT = typer.Option(..., "--out", "-o", help="The new model's folder.")
RECIPE = typer.Option(None, "--recipe", "-r", help="TOML: network, method, training.")
EMBED = typer.Option(False, "--embed-buffer", help="Keep images with the model, not their paths and hashes.")


def start(
    data: Path = DATA,
    out: Path = OUT,
    recipe: str | None = RECIPE,
    slots: int | None = typer.Option(
        None,
        "--slots",
        min=2,
        help="Room for classes, now and later.",
        show_default="twice those there are, 100 at least",
    ),
    set_: list[str] = SET_OPTION,
    embed_buffer: bool = EMBED,
    device: str = DEVICE_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Train version 1 of your own model, on images or vectors.

    A fifth of the images is held out, to judge later versions by; some of each class are remembered, to be replayed.
    The folder is what Encoder.from_pretrained and holdfast gallery read; recipe.toml in it says how it was trained.
    Killed, the same command goes on.

    Example: holdfast start --data photos/spring --out models/1

    Then: holdfast update --from models/1 --data photos/summer --out models/2
    """
    from holdfast.updating import start

    with making(f"{out}", quiet=quiet or json) as watch:
        info = start(
            data,
            out,
            recipe=recipe,
            overrides=set_,
            slots=slots,
            embed_buffer=embed_buffer,
            device=device,
            watch=watch,
        )
    tell_version(out, info, json=json)
