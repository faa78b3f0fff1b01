"""``holdfast run``: train and evaluate one recipe."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import (
    DATA_OPTION,
    DEVICE_OPTION,
    JSON_OPTION,
    SET_OPTION,
)
from holdfast.cli.show import print_json, print_table, scores_row

if TYPE_CHECKING:
    from holdfast.train.experiments.assemble import SharedData
    from holdfast.train.experiments.schema import Recipe


def run(
    recipe: str = typer.Argument(
        ..., metavar="RECIPE", help="A TOML file, or a built-in recipe (see: holdfast ls recipes)."
    ),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="The run folder.", show_default="runs/RECIPE-METHOD-tTASKS-sSEED"
    ),
    set_: list[str] = SET_OPTION,
    data: Path | None = DATA_OPTION,
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Train and evaluate one recipe.

    The run folder gets recipe.toml, log.jsonl, one model per task (models/01, 02, ...), features and
    metrics.json. After a kill, run the same command to resume.

    Pre-trained models are in $HOLDFAST_MODELS, else ./models.

    Example: holdfast run cifar100-10/simplex_hoc --set scenario.tasks=7 --data ~/data
    """
    from holdfast.train.experiments.assemble import SharedData
    from holdfast.train.experiments.load import find_recipe, read_recipe
    from holdfast.train.experiments.schema import check_recipe

    checked = check_recipe(read_recipe(recipe, set_))
    folder = out or default_folder(find_recipe(recipe), checked)
    metrics = execute_with_progress(checked, folder, shared=SharedData(data), device=device, quiet=json)
    if json:
        print_json({**metrics, "run": str(folder)})
        return
    header = [f"{metrics['method']}, protocol", "AC", "AA %", "ACA %"]
    print_table(header, [scores_row(name, scores) for name, scores in metrics["protocols"].items()], right=(1, 2, 3))
    stored = metrics["data"].get("stored")
    if stored:
        last = f"{stored['numbers'][-1]} numbers an item instead of {stored['full'][-1]}"
        typer.echo(f"Galleries are stored {stored['times_smaller']:.1f} times smaller ({last} for the last model)")
    typer.echo(f"Scores: {folder / 'metrics.json'}")


def execute_with_progress(
    recipe: "Recipe",
    folder: Path,
    *,
    shared: "SharedData",
    device: str,
    quiet: bool,
) -> dict[str, Any]:
    """Execute one checked recipe with progress on stderr; returns its metrics."""
    from holdfast.cli.progress import ProgressDisplay, cancel_on_interrupt, exit_on_interrupt
    from holdfast.core.run_folder import FolderRefusedError, RunFolder
    from holdfast.train.data.decode import report_decoding
    from holdfast.train.engine import RunControl
    from holdfast.train.experiments.execute import execute

    try:
        with (
            exit_on_interrupt(),
            ProgressDisplay(recipe.method, quiet=quiet) as display,
            report_decoding(display.decoding),
            cancel_on_interrupt() as cancel,
        ):
            return execute(
                recipe,
                RunFolder(folder),
                shared=shared,
                device=device,
                resume=True,
                control=RunControl(display.follow, cancel),
            )
    except FolderRefusedError as error:  # name the options as the command line does
        message = str(error).replace("another folder", "another --out")
        raise FolderRefusedError(message) from error


def default_folder(path: Path, recipe: "Recipe") -> Path:
    """runs/NAME-METHOD-tTASKS-sSEED; NAME is the folder of a set of recipes."""
    from holdfast.train.experiments.load import family
    from holdfast.train.methods import METHODS

    return Path("runs") / f"{family(path, METHODS)}-{recipe.short_name}"
