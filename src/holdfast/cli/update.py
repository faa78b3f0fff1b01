"""``holdfast update``: train the next version of your own model, compatible with the one in use."""

from pathlib import Path

import typer

from holdfast.cli.options import DEVICE_OPTION, JSON_OPTION, SET_OPTION, yes_or_no
from holdfast.cli.start import (
    BACKBONE_HELP,
    DATA,
    OUT,
    RECIPE,
    SKIP,
    SPLIT_FOLDERS,
    print_version,
    version_progress,
)


def update(
    model: Path = typer.Option(..., "--from", metavar="MODEL", help="The model in use; it is only read."),
    data: Path = DATA,
    out: Path = OUT,
    recipe: str | None = RECIPE,
    backbone: str | None = typer.Option(
        None,
        "--backbone",
        metavar="NAME|FILE|MODEL",
        help=BACKBONE_HELP + "code, or another model's folder. Another than MODEL's own replaces it.",
        show_default="that of MODEL",
    ),
    set_: list[str] = SET_OPTION,
    buffer_from: Path | None = typer.Option(
        None, "--buffer-from", help="Choose the replay images from this data: the model has none, or lost them."
    ),
    check_on: Path | None = typer.Option(None, "--check-on", help="Check on these images and hold out none of --data."),
    max_loss: float | None = typer.Option(
        None,
        "--max-loss",
        help="Exit with 1 if more is lost, as a fraction of 1, and with 3 if that is not judged.",
        show_default="only told, of 0.01",
    ),
    split_folders: str | None = SPLIT_FOLDERS,
    skip_unreadable: bool = SKIP,
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Train the next version of a model, and check it.

    There may be new classes and new images of known ones, and the images kept with MODEL are replayed. The loss keeps
    the new version compatible with MODEL. Settings are those of MODEL unless --recipe or --set changes them.

    The check says whether its queries find more than the old model on the vectors that are already stored, whether at
    most one point (--max-loss) is lost, and how much of a re-embedding is kept. Known classes decide, because an
    old index holds no items of new classes. Both models are compared on all images that were held out from training so
    far: OUT/check.json and OUT/check.html. After a kill, run the same command to
    resume. holdfast gallery register measures how often older items are shown, with and without a bridge.

    Example: holdfast update --from models/1 --data photos/summer --out models/2
    """
    from holdfast.train.versions import update as train_next

    with version_progress(f"{out}", quiet=json) as progress:
        info = train_next(
            model,
            data,
            out,
            settings=recipe,
            backbone=backbone,
            changes=set_,
            buffer_from=buffer_from,
            check_on=check_on,
            max_loss=max_loss,
            split_folders=yes_or_no("--split-folders", split_folders),
            skip_unreadable=skip_unreadable,
            device=device,
            **progress,
        )
    check = print_version(out, info, json=json)
    if max_loss is not None:
        from holdfast.checks.verdict import WITHOUT_JUDGEMENTS

        raise typer.Exit(WITHOUT_JUDGEMENTS if check is None else check["exit_code"])
