"""The ``theory`` commands that need trained models.

``stationarity`` checks the assumptions of Theorem 1 on the training images of a finished run. ``toy`` (Fig. 3) and
``proposition1`` train a recipe twice, with cross-entropy alone (lambda = 1) and with HOC.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import DATA_OPTION, DEVICE_OPTION, JSON_OPTION, SET_OPTION
from holdfast.cli.run import execute_with_progress
from holdfast.cli.show import print_json, print_table, say
from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import read_json, replacing_folder, write_text
from holdfast.core.wording import per_cent
from holdfast.train.events import read_events
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.schema import Recipe, check_recipe
from papers.stationary.recipe_files import read_study_recipe
from papers.stationary.stationarity_measure import measure_stationarity
from papers.stationary.toy_measure import loss_curves

PER_CLASS_OPTION = typer.Option(20, "--per-class", help="Training images of each class to look at.")


def stationarity(
    run: Path = typer.Argument(..., help="The folder of a finished run."),
    per_class: int = PER_CLASS_OPTION,
    data: Path | None = DATA_OPTION,
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Does Theorem 1's assumption hold in a run, and where not?

    Runs every model over training images of the classes it knows. Writes RUN/stationarity.json and adds the answer to
    RUN/report.html.
    """
    from papers.run_pages.stationarity import verdict

    record = _measure(RunFolder(run), per_class=per_class, data=data, device=device)
    if json:
        print_json({**record, "run": str(run)})
        return
    print_table(
        ["update", "n", "kept", "cap", "then", "moved", "1a", "mean", "1b", "mean"],
        [_update_row(update) for update in record["updates"]],
        right=range(1, 7),
    )
    typer.echo(
        "n: classes; kept: share of them whose cap did not grow; cap, then: its angle\n"
        "before and after; moved: prototypes."
    )
    typer.echo("1a, 1b: share of sample pairs for which Eq. 1a, 1b holds; mean: on average?")
    say(verdict(record))


def toy(
    out: Path = typer.Option(Path("runs/toy"), "--out", "-o", help="Where the two runs, toy.json and fig3.png go."),
    glyphs: bool = typer.Option(False, "--glyphs", help="Use drawn characters: needs no MNIST."),
    set_: list[str] = SET_OPTION,
    data: Path | None = DATA_OPTION,
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Figure 3: LeNet++, five classes and then five more.

    Cross-entropy against HOC. Draws the loss of both over the epochs of fine-tuning, and counts the sample pairs that
    break Eq. 1a and 1b (Proposition 1). MNIST is read from mnist.npz or the four idx files in the data folder.
    """
    from holdfast.core.storage import write_json
    from papers.stationary.theory_figures import CE_LABEL, save, toy_figure

    name = "toy/glyphs" if glyphs else "toy/mnist"
    words = "".join(f" --set {setting}" for setting in set_)
    command = f"python -m papers.stationary theory toy{' --glyphs' if glyphs else ''}{words}"
    record = _train_both(name, command, out, set_=set_, data=data, device=device, quiet=json)
    write_json(out / "toy.json", record)
    hoc = f"HOC (λ = {record['lambda']:g})"
    curves = {CE_LABEL: record["curves"]["ce"], hoc: record["curves"]["hoc"]}
    save(toy_figure(curves, record["data"]), out / "fig3.png")
    if json:
        print_json(record)
        return
    print_table(
        ["fine-tuning", "first epoch", "last epoch", "CE part, first", "CE part, last"],
        [
            [label, *(f"{curve[at]:.4f}" for curve in (values["loss"], values["ce"]) for at in (0, -1))]
            for label, values in zip(("CE alone", "HOC"), record["curves"].values())
        ],
        right=(1, 2, 3, 4),
    )
    _print_violations(record)
    typer.echo(f"Figure: {(out / 'fig3.png').resolve()}")


def proposition1(
    recipe: str = typer.Argument("demo", help="A recipe of d-Simplex-HOC, by file or name."),
    out: Path = typer.Option(Path("runs/proposition1"), "--out", "-o", help="Where the two runs go."),
    set_: list[str] = SET_OPTION,
    data: Path | None = DATA_OPTION,
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Proposition 1: pairs that break the definition.

    The shares of sample pairs that break Eq. 1a and 1b, after cross-entropy alone and after HOC. Trains the recipe
    twice, with lambda 1 and as it stands; the first model is the same. Runs already there are kept.
    """
    from holdfast.core.storage import write_json

    words = "".join(f" --set {setting}" for setting in set_)
    command = f"python -m papers.stationary theory proposition1 {recipe}{words}"
    record = _train_both(recipe, command, out, set_=set_, data=data, device=device, quiet=json)
    write_json(out / "proposition1.json", record)
    if json:
        print_json(record)
    else:
        _print_violations(record)


def _train_both(
    source: str, command: str, out: Path, *, set_: list[str], data: Path | None, device: str, quiet: bool
) -> dict[str, Any]:

    recipes = both_recipes(source, set_)
    folders = {name: RunFolder(out / name) for name in recipes}
    _run(recipes["ce"], folders["ce"], data=data, device=device, quiet=quiet)
    share_first_model(folders["ce"], folders["hoc"], recipes["hoc"])
    _run(recipes["hoc"], folders["hoc"], data=data, device=device, quiet=quiet)
    for folder in folders.values():
        _measure(folder, per_class=20, data=data, device=device)
    return pair_record(folders, recipes["hoc"], command)


def _run(recipe: Recipe, folder: RunFolder, *, data: Path | None, device: str, quiet: bool) -> None:
    shared = SharedData(data)
    execute_with_progress(recipe, folder.path, shared=shared, device=device, quiet=quiet)


def _measure(folder: RunFolder, *, per_class: int, data: Path | None, device: str) -> dict[str, Any]:
    from holdfast.core.storage import write_json
    from holdfast.train.devices import resolve_device
    from papers.run_pages import write_report

    record = measure_stationarity(folder, data=data, device=resolve_device(device), per_class=per_class)
    write_json(folder.stationarity, record)
    if folder.metrics.exists():
        write_report([folder.path], folder.path / "report.html")
    return record


def _update_row(update: dict[str, Any]) -> list[str]:
    kinds = [update["same"], update["different"]]
    return [
        f"{update['from']} to {update['to']}",
        str(update["num_classes"]),
        f"{100 * update['shrank']:.0f} %",
        *(f"{update[key]:.1f}°" for key in ("old_cap", "new_cap", "moved")),
        *(part for kind in kinds for part in (_share(kind["share"]), "yes" if kind["holds_on_average"] else "no")),
    ]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _print_violations(record: dict[str, Any]) -> None:
    rows = [
        [
            f"{ce['from']} to {ce['to']}",
            *(f"{per_cent(found[eq]['violated'])} %" for eq in ("eq1a", "eq1b") for found in (ce, hoc)),
        ]
        for ce, hoc in zip(*record["proposition1"].values())
    ]
    print_table(["update", "1a: CE alone", "HOC", "1b: CE alone", "HOC"], rows, right=(1, 2, 3, 4))
    typer.echo("Shares of sample pairs that break Eq. 1a (one class) and Eq. 1b (two classes).")


def both_recipes(source: str, overrides: Sequence[str] = ()) -> dict[str, Recipe]:
    """``{"ce": ..., "hoc": ...}``: the recipe with lambda = 1, and as it stands."""
    hoc = check_recipe(read_study_recipe(source, overrides))
    if hoc.method != "simplex_hoc" or hoc["method"]["lambda"] == 1:
        raise HoldfastError(f"{source}: needs the method simplex_hoc with lambda below 1, to be compared with lambda 1")
    return {"ce": check_recipe(read_study_recipe(source, [*overrides, "method.lambda=1.0"])), "hoc": hoc}


def share_first_model(done: RunFolder, other: RunFolder, recipe: Recipe) -> None:
    """Give ``other``, if it does not exist yet, the first model of ``done``: both losses are the same until then."""
    if other.path.exists():
        return
    write_text(other.recipe, recipe.to_toml())
    events = [event for event in read_events(done.log) if event.get("task") == 1]
    write_text(other.log, "".join(json.dumps(event) + "\n" for event in events))
    with replacing_folder(other.model(1)) as temporary:
        shutil.copytree(done.model(1), temporary, dirs_exist_ok=True)


def violations(stationarity: dict[str, Any]) -> list[dict[str, Any]]:
    """Per update the shares of sample pairs that break Eq. 1a and Eq. 1b, and whether each holds on average."""
    return [
        {
            "from": update["from"],
            "to": update["to"],
            **{
                name: {
                    "violated": None if update[kind]["share"] is None else 1 - update[kind]["share"],
                    "holds_on_average": update[kind]["holds_on_average"],
                    "kt": update[kind]["kt"],
                    "kk": update[kind]["kk"],
                }
                for name, kind in (("eq1a", "same"), ("eq1b", "different"))
            },
        }
        for update in stationarity["updates"]
    ]


def pair_record(folders: dict[str, RunFolder], recipe: Recipe, command: str) -> dict[str, Any]:
    """All that the toy's figure and Proposition 1's table show, and where it came from; stationarity is measured."""
    lambdas = {"ce": 1.0, "hoc": float(recipe["method"]["lambda"])}
    return {
        "command": command,
        "data": recipe["title"] or recipe["data"]["train"]["name"],
        "lambda": lambdas["hoc"],
        "rho": recipe["method"]["rho"],
        "curves": {name: loss_curves(folder, lambdas[name]) for name, folder in folders.items()},
        "proposition1": {name: violations(read_json(folder.stationarity)) for name, folder in folders.items()},
        "stationarity": {
            name: [
                {key: value for key, value in update.items() if key != "classes"}
                for update in read_json(folder.stationarity)["updates"]
            ]
            for name, folder in folders.items()
        },
        "recipe": dict(recipe.tables),
        "environment": read_json(folders["hoc"].environment),
    }
