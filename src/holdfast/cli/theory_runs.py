"""The parts of ``holdfast theory`` that look at trained runs, or train two."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.run import DATA_OPTION, DEVICE_OPTION, QUIET_OPTION, SET_OPTION, run_recipe
from holdfast.cli.show import JSON_OPTION, per_cent, print_json, print_table, say

if TYPE_CHECKING:
    from holdfast.recipes.schema import Recipe
    from holdfast.run_folder import RunFolder

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
    from holdfast.reports.stationarity import verdict
    from holdfast.run_folder import RunFolder

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
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Figure 3: LeNet++, five classes and then five more.

    Cross-entropy against HOC. Draws the loss of both over the epochs of fine-tuning, and counts the sample pairs that
    break Eq. 1a and 1b (Proposition 1). MNIST is read from mnist.npz or the four idx files in the data folder.
    """
    from holdfast.storage import write_json
    from holdfast.theory.draw_toy import draw_toy

    name = "toy/glyphs" if glyphs else "toy/mnist"
    words = "".join(f" --set {setting}" for setting in set_)
    command = f"holdfast theory toy{' --glyphs' if glyphs else ''}{words}"
    record = _train_both(name, command, out, set_=set_, data=data, device=device, quiet=quiet or json)
    write_json(out / "toy.json", record)
    draw_toy(out / "fig3.png", record)
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
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Proposition 1: pairs that break the definition.

    The shares of sample pairs that break Eq. 1a and 1b, after cross-entropy alone and after HOC. Trains the recipe
    twice, with lambda 1 and as it stands; the first model is the same. Runs already there are kept.
    """
    from holdfast.storage import write_json

    words = "".join(f" --set {setting}" for setting in set_)
    command = f"holdfast theory proposition1 {recipe}{words}"
    record = _train_both(recipe, command, out, set_=set_, data=data, device=device, quiet=quiet or json)
    write_json(out / "proposition1.json", record)
    if json:
        print_json(record)
    else:
        _print_violations(record)


def _train_both(
    source: str, command: str, out: Path, *, set_: list[str], data: Path | None, device: str, quiet: bool
) -> dict[str, Any]:
    from holdfast.recipes.pair_of_losses import both_recipes, pair_record, share_first_model
    from holdfast.run_folder import RunFolder

    recipes = both_recipes(source, set_)
    folders = {name: RunFolder(out / name) for name in recipes}
    _run(recipes["ce"], folders["ce"], data=data, device=device, quiet=quiet)
    share_first_model(folders["ce"], folders["hoc"], recipes["hoc"])
    _run(recipes["hoc"], folders["hoc"], data=data, device=device, quiet=quiet)
    for folder in folders.values():
        _measure(folder, per_class=20, data=data, device=device)
    return pair_record(folders, recipes["hoc"], command)


def _run(recipe: "Recipe", folder: "RunFolder", *, data: Path | None, device: str, quiet: bool) -> None:
    run_recipe(recipe, folder.path, data=data, device=device, resume=folder.path.exists(), quiet=quiet)


def _measure(folder: "RunFolder", *, per_class: int, data: Path | None, device: str) -> dict[str, Any]:
    from holdfast.devices import resolve_device
    from holdfast.recipes.stationarity import measure_stationarity
    from holdfast.reports import write_report
    from holdfast.storage import write_json

    record = measure_stationarity(folder, data=data, device=resolve_device(device), per_class=per_class)
    write_json(folder.stationarity, record)
    if folder.metrics.exists():
        write_report([folder.path], folder.report)
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
