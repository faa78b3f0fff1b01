"""``holdfast pretrain``: train a model from scratch, to start from or to replace another with."""

from pathlib import Path

import typer

from holdfast.cli.options import DATA_OPTION, DEVICE_OPTION, JSON_OPTION, SET_OPTION
from holdfast.cli.show import print_json, print_table


def pretrain(
    recipe: str = typer.Argument(
        ..., metavar="RECIPE", help="A TOML file, or a built-in recipe such as pretrain/tinyimagenet32."
    ),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="The model's folder.", show_default="$HOLDFAST_MODELS/DATASET/BACKBONE-CLASSES-HEAD"
    ),
    set_: list[str] = SET_OPTION,
    data: Path | None = DATA_OPTION,
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Train a model from scratch, to start from or to bring in.

    Each class is trained to its slot (method.name=simplex_hoc), or with a trainable classifier (er).
    Encoder.from_pretrained reads the folder, and recipes name it as a model. After a kill, run the same command to
    resume; a finished model is not trained again.

    Example: holdfast pretrain pretrain/tinyimagenet32 --set data.classes=50
    """
    from holdfast.cli.progress import ProgressDisplay, cancel_on_interrupt, exit_on_interrupt
    from holdfast.core.run_folder import RunFolder
    from holdfast.train.data.decode import report_decoding
    from holdfast.train.engine import RunControl
    from holdfast.train.experiments import pretrain as pretraining
    from holdfast.train.experiments.assemble import SharedData
    from holdfast.train.experiments.load import read_recipe
    from holdfast.train.experiments.models import models_root

    checked = pretraining.check_pretrain_recipe(read_recipe(recipe, set_))
    folder = out or models_root() / checked.folder
    with (
        exit_on_interrupt(),
        ProgressDisplay(folder.name, quiet=json) as display,
        report_decoding(display.decoding),
        cancel_on_interrupt() as cancel,
    ):
        control, shared = RunControl(display.follow, cancel), SharedData(data)
        record = pretraining.pretrain(checked, RunFolder(folder), shared=shared, device=device, control=control)
    if json:
        print_json({"model": str(folder), **record})
        return
    row = [str(record["classes"]), str(record["steps"]), f"{record['seconds']:.1f}", f"{record['loss']:.3f}"]
    print_table(["model", "classes", "steps", "seconds", "loss"], [[str(folder), *row]], right=(1, 2, 3, 4))
