"""``holdfast ls``: what there is to choose from."""

from enum import StrEnum

import typer

from holdfast.cli.show import JSON_OPTION, print_json, print_table


class Kind(StrEnum):
    methods = "methods"
    backbones = "backbones"
    datasets = "datasets"
    recipes = "recipes"


def ls(
    kind: Kind = typer.Argument(..., help="methods, backbones, datasets or recipes."),
    json: bool = JSON_OPTION,
) -> None:
    """List methods, backbones, datasets or recipes.

    Each is shown with what it takes.
    """
    rows = {Kind.methods: _methods, Kind.backbones: _backbones, Kind.datasets: _datasets, Kind.recipes: _recipes}[
        kind
    ]()
    if json:
        print_json(rows)
        return
    rest = [key for key in rows[0] if key not in ("name", "about", "file")]  # a path is too wide to be copied from here
    print_table(
        ["name", "about"],
        [[row["name"], "\n".join([row["about"], *(f"{key}: {row[key]}" for key in rest if row[key])])] for row in rows],
    )
    if kind == Kind.recipes:
        _tell_recipes()


def _methods() -> list[dict[str, str]]:
    from holdfast.methods import METHODS

    return [
        {
            **_described(name, build),
            "reconstruction": build.reconstruction,
            "origin": "ours" if build.ours else "published",
        }
        for name, build in METHODS.items()
    ]


def _backbones() -> list[dict[str, str]]:
    from holdfast.encoders import BACKBONES, PREFIXES

    rows = [_described(name, build) for name, build in BACKBONES.items()]
    about = ("through an extra library, where it is installed",) * 2 + ("your own code: docs/own-model.md",)
    return rows + [{"name": name, "about": text, "options": ""} for name, text in zip(PREFIXES, about, strict=True)]


def _datasets() -> list[dict[str, str]]:
    from holdfast.data import DATASETS

    return [_described(name, load) for name, load in DATASETS.items()]


def _recipes() -> list[dict[str, str]]:
    from holdfast.experiments.load import builtin_recipes, read_recipe

    return [
        {"name": name, "about": f"{read_recipe(str(path)).get('title', '')}{_set(path.parent.name)}", "file": str(path)}
        for name, path in builtin_recipes()
    ]


def _set(folder: str) -> str:
    """A tuned recipe takes its title over from the paper's one, which it extends."""
    return ", tuned" if folder == "tuned" else ""


def _tell_recipes() -> None:
    from holdfast.experiments.load import builtin_folder

    typer.echo("By name: holdfast run cifar100-10/er, holdfast pretrain pretrain/imagenet32")
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
