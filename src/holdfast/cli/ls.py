"""``holdfast ls``: list methods, backbones, datasets and recipes."""

from enum import StrEnum

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.show import print_json, print_table


class Kind(StrEnum):
    methods = "methods"
    backbones = "backbones"
    datasets = "datasets"
    recipes = "recipes"


def ls(
    kind: Kind = typer.Argument(..., metavar="KIND", help="methods, backbones, datasets or recipes."),
    json: bool = JSON_OPTION,
) -> None:
    """List methods, backbones, datasets or recipes.

    Each is shown with its options.

    Example: holdfast ls methods
    """
    rows = {Kind.methods: _methods, Kind.backbones: _backbones, Kind.datasets: _datasets, Kind.recipes: _recipes}[
        kind
    ]()
    if json:
        print_json(rows)
        return
    rest = [key for key in rows[0] if key not in ("name", "about", "file")]  # paths are too wide for the table
    print_table(
        ["name", "about"],
        [[row["name"], "\n".join([row["about"], *(f"{key}: {row[key]}" for key in rest if row[key])])] for row in rows],
    )
    if kind == Kind.recipes:
        _print_recipe_folder()


def _methods() -> list[dict[str, str]]:
    from holdfast.train.methods import METHODS

    return [
        {
            **_described(name, build),
            "reconstruction": build.reconstruction,
            "origin": "ours" if build.ours else "published",
        }
        for name, build in METHODS.items()
    ]


def _backbones() -> list[dict[str, str]]:
    from holdfast.train.encoders import BACKBONES, PREFIXES

    rows = [_described(name, build) for name, build in BACKBONES.items()]
    about = ("through an extra library, where it is installed",) * 2 + ("your own code: docs/own-model.md",)
    return rows + [{"name": name, "about": text, "options": ""} for name, text in zip(PREFIXES, about, strict=True)]


def _datasets() -> list[dict[str, str]]:
    from holdfast.train.data import READERS

    return [_described(name, read) for name, read in READERS.items()]


def _recipes() -> list[dict[str, str]]:
    from holdfast.train.experiments.load import builtin_recipes, read_recipe

    return [
        {"name": name, "about": f"{read_recipe(str(path)).get('title', '')}{_set(path.parent.name)}", "file": str(path)}
        for name, path in builtin_recipes()
    ]


def _set(folder: str) -> str:
    """A tuned recipe has the same title as the recipe that it extends."""
    return ", tuned" if folder == "tuned" else ""


def _print_recipe_folder() -> None:
    from holdfast.train.experiments.load import builtin_folder

    typer.echo("By name: holdfast run cifar100-10/er, holdfast pretrain pretrain/tinyimagenet32")
    typer.echo(f"The files, to copy and change: {builtin_folder()}")


def _described(name: str, callee: object) -> dict[str, str]:
    """The first line of the docstring, and the keyword options with their defaults."""
    import inspect

    about = (inspect.getdoc(callee) or "").splitlines()[0].replace("``", "")
    options = []
    for key, parameter in inspect.signature(callee).parameters.items():  # type: ignore[arg-type]
        if parameter.kind is parameter.KEYWORD_ONLY:
            default = "" if parameter.default is parameter.empty else f"={parameter.default}"
            options.append(key.rstrip("_") + default)
    return {"name": name, "about": about, "options": ", ".join(options)}
