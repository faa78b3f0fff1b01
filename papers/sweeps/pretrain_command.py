"""Train models from scratch, to start from or to replace others with: the command."""

from pathlib import Path

import typer

from holdfast.cli.options import (
    DATA_OPTION,
    DEVICE_OPTION,
    JSON_OPTION,
    MODELS_OPTION,
    SET_OPTION,
    int_list,
    name_list,
)
from holdfast.cli.show import print_json, print_table
from papers.sweeps.failures import failure_lines


def pretrain(
    recipes: list[str] = typer.Argument(
        ..., metavar="RECIPES", help="TOML files, or built-in recipes such as pretrain/tinyimagenet32."
    ),
    methods: str = typer.Option(
        "",
        "--methods",
        help="simplex_hoc for slots, er for a trainable classifier, or your own module:Class.",
        show_default="the recipe's",
    ),
    backbones: str = typer.Option("", "--backbones", help="Names with commas.", show_default="the recipe's"),
    classes: str = typer.Option("", "--classes", help="Class counts, such as 50,100.", show_default="the recipe's"),
    parallel: int = typer.Option(1, "--parallel", "-n", min=1, help="Models at a time; on a GPU at most 32."),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="The folder of a single model.", show_default="MODELS/DATASET/BACKBONE-CLASSES-HEAD"
    ),
    models: Path | None = MODELS_OPTION,
    set_: list[str] = SET_OPTION,
    data: Path | None = DATA_OPTION,
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Train models from scratch, to start from or to bring in.

    Each class is trained to its slot, or with a trainable classifier. Encoder.from_pretrained reads the folder of a
    model, and recipes name it as a model. After a kill, run the same command to resume; finished models are not trained
    again.

    Example: python -m papers.stationary pretrain pretrain/tinyimagenet32 --classes 50,100
    """
    from holdfast.cli.progress import ProgressDisplay, exit_on_interrupt
    from holdfast.core.errors import HoldfastError
    from holdfast.train.devices import resolve_device
    from holdfast.train.experiments.assemble import SharedData
    from holdfast.train.experiments.models import models_root
    from papers.stationary.recipe_files import study_recipe
    from papers.sweeps.pretraining import plan_models, pretrain_many

    planned = plan_models(
        [study_recipe(source) for source in recipes],
        methods=name_list(methods),
        backbones=name_list(backbones),
        classes=int_list("--classes", classes, required=False),
        settings=set_,
    )
    folder = models_root(models)
    if out is not None:
        if len(planned) > 1:
            raise HoldfastError(f"--out names one folder, but {len(planned)} models are planned; use --models")
        folder, planned = out.parent, {out.name: next(iter(planned.values()))}
    where = resolve_device(device)
    with exit_on_interrupt(), ProgressDisplay(quiet=json, runs=len(planned)) as display:
        shared = SharedData(data, models, decoding=display.decoding)
        found = pretrain_many(planned, folder, shared=shared, device=where, parallel=parallel, watch=display.watch)
    good = {name: record for name, record in found.items() if isinstance(record, dict)}
    failed = {name: str(error) for name, error in found.items() if isinstance(error, HoldfastError)}
    if len(planned) == 1 and failed and not json:
        raise HoldfastError(next(iter(failed.values())))
    if json:
        rows = [{"model": str(folder / name), **record} for name, record in good.items()]
        print_json([*rows, *({"model": str(folder / name), "failed": why} for name, why in failed.items())])
    else:
        shown = [
            [name, str(record["classes"]), str(record["steps"]), f"{record['seconds']:.1f}", f"{record['loss']:.3f}"]
            for name, record in good.items()
        ]
        print_table(["model", "classes", "steps", "seconds", "loss"], shown, right=(1, 2, 3, 4))
        for line in failure_lines(failed):
            typer.echo(line, err=True)
    if failed:
        raise typer.Exit(1)
