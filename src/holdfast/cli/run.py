"""``holdfast run``: one recipe, from images to a report."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.show import JSON_OPTION, print_json, print_mixed, print_table, scores_row

if TYPE_CHECKING:
    from holdfast.experiments.schema import Recipe
    from holdfast.training.ranks import Ranks

SET_OPTION = typer.Option([], "--set", metavar="KEY=VALUE", help="Override one setting, such as train.epochs=10.")
DATA_OPTION = typer.Option(None, "--data", help="Where data sets are.", show_default="$HOLDFAST_DATA, else ./data")
MODELS_OPTION = typer.Option(
    None, "--models", help="Where pre-trained models are.", show_default="$HOLDFAST_MODELS, else ./models"
)
DEVICE_OPTION = typer.Option("auto", "--device", help="auto, cpu, cuda or cuda:N.")
LOG_OPTION = typer.Option(
    [], "--log", metavar="SINK", help="Also log to tensorboard, wandb or mlflow; may be given several times."
)
QUIET_OPTION = typer.Option(False, "--quiet", "-q", help="No progress on stderr.")


def run(
    recipe: str = typer.Argument(..., help="A TOML file, or a built-in recipe (see: holdfast ls recipes)."),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="The run folder.", show_default="runs/RECIPE-METHOD-tTASKS-sSEED"
    ),
    set_: list[str] = SET_OPTION,
    resume: bool = typer.Option(False, "--resume", help="Go on with the run in the folder."),
    data: Path | None = DATA_OPTION,
    models: Path | None = MODELS_OPTION,
    device: str = DEVICE_OPTION,
    log: list[str] = LOG_OPTION,
    tensorboard: bool = typer.Option(False, "--tensorboard", help="The same as --log tensorboard."),
    record: Path | None = typer.Option(None, "--record", help="Also write one JSON file with all about the run."),
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Train, evaluate and report one recipe.

    The run folder gets recipe.toml, log.jsonl, one model per task (models/01, 02, ...), features, metrics.json and
    report.html. It may be killed at any moment: the same command with --resume goes on.

    Several GPUs or machines: torchrun --nproc_per_node N -m holdfast run ... trains with the batch shared out.

    Example: holdfast run cifar100-10/simplex_hoc --set scenario.tasks=7 --data ~/data
    """
    from holdfast.experiments.load import find_recipe, read_recipe
    from holdfast.experiments.record import write_record
    from holdfast.experiments.schema import check_recipe
    from holdfast.run_folder import RunFolder
    from holdfast.training.ranks import joined

    checked = check_recipe(read_recipe(recipe, set_))
    folder = out or default_folder(find_recipe(recipe), checked)
    with joined(device) as ranks:
        metrics = run_recipe(
            checked,
            folder,
            data=data,
            models=models,
            device=device,
            resume=resume,
            sinks=[*log, *(["tensorboard"] if tensorboard else [])],
            quiet=quiet or json or not ranks.first,
            ranks=ranks,
        )
    if not ranks.first:
        return
    if record:
        settings = "".join(f" --set {setting}" for setting in set_)
        write_record(RunFolder(folder), record, f"holdfast run {recipe}{settings}")
    if json:
        print_json({**metrics, "run": str(folder)})
        return
    header = [f"{metrics['method']}, protocol", "AC", "AA %", "ACA %"]
    print_table(header, [scores_row(name, scores) for name, scores in metrics["protocols"].items()], right=(1, 2, 3))
    if "mixed" in metrics:
        print_mixed(metrics["mixed"])
    stored = metrics["data"].get("stored")
    if stored:
        last = f"{stored['numbers'][-1]} numbers an item instead of {stored['full'][-1]}"
        typer.echo(f"Galleries are stored {stored['times_smaller']:.1f} times smaller ({last} for the last model)")
    typer.echo(f"Report: {folder / 'report.html'}")


def run_recipe(
    recipe: "Recipe",
    folder: Path,
    *,
    data: Path | None,
    device: str,
    resume: bool,
    quiet: bool,
    sinks: Sequence[str] = (),
    models: Path | None = None,
    ranks: "Ranks | None" = None,
) -> dict[str, Any]:
    """Execute one checked recipe with progress on stderr; its metrics."""
    from holdfast.cli.progress import between_steps, decoding_lines, watcher
    from holdfast.experiments.assemble import SharedData
    from holdfast.experiments.execute import execute
    from holdfast.run_folder import RunFolder
    from holdfast.training.ranks import ALONE

    try:
        # Ranks that stopped at different steps would wait for each other.
        stopping = between_steps if ranks is None or ranks is ALONE else contextlib.nullcontext
        with watcher(recipe.method, quiet=quiet) as shown, stopping(shown) as watch:
            return execute(
                recipe,
                RunFolder(folder),
                shared=SharedData(data, models, decoding=decoding_lines(quiet=quiet)),
                device=device,
                resume=resume,
                sinks=sinks,
                watch=watch,
                ranks=ranks or ALONE,
            )
    except KeyboardInterrupt:  # caught here because typer would say no more than "Aborted"
        typer.echo("holdfast: interrupted; what is done is kept: the same command with --resume goes on", err=True)
        raise typer.Exit(130) from None


def default_folder(path: Path, recipe: "Recipe") -> Path:
    """runs/NAME-METHOD-tTASKS-sSEED; NAME is the folder of a set of recipes."""
    from holdfast.experiments.load import family
    from holdfast.methods import METHODS

    return Path("runs") / f"{family(path, METHODS)}-{recipe.short_name}"
