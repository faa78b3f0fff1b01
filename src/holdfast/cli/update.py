"""``holdfast update``: train the next version of your own model, compatible with the one in use."""

from pathlib import Path

import typer

from holdfast.cli.options import DEVICE_OPTION, JSON_OPTION, QUIET_OPTION, SET_OPTION, yes_or_no
from holdfast.cli.start import DATA, EMBED, OUT, RECIPE, SKIP, SPLIT_FOLDERS, print_version, version_progress


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
        None, "--buffer-from", help="Choose the replay images from this data: the model has none, or lost them."
    ),
    check_on: Path | None = typer.Option(None, "--check-on", help="Check on these images and hold out none of --data."),
    min_gain: float = typer.Option(0.0, "--min-gain", help="Of the check, as a fraction of 1; -0.01: a point worse."),
    split_folders: str | None = SPLIT_FOLDERS,
    skip_unreadable: bool = SKIP,
    must_pass: bool = typer.Option(False, "--must-pass", help="Exit with 1 unless the verdict is compatible."),
    device: str = DEVICE_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Train the next version of a model, and check it.

    The verdict says whether its queries may search the vectors that are already stored. New classes take new slots,
    known classes may have new images, and the images kept with MODEL are replayed. The loss keeps the new version
    compatible with MODEL. Settings are those of MODEL unless --recipe or --set changes them. At the end both models are
    compared on images that neither was trained on: OUT/check.json and OUT/check.html. It also says how often items of
    older versions are expected to be shown in one gallery, with and without a bridge. After a kill, run the same
    command to resume.

    Example: holdfast update --from models/1 --data photos/summer --out models/2
    """
    from holdfast.experiments.update_recipes import update_from_recipe

    with version_progress(f"{out}", quiet=quiet or json) as progress:
        info = update_from_recipe(
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
            split_folders=yes_or_no("--split-folders", split_folders),
            skip_unreadable=skip_unreadable,
            device=device,
            **progress,
        )
    verdict = print_version(out, info, json=json)
    if must_pass and verdict != "compatible":
        raise typer.Exit(1)
