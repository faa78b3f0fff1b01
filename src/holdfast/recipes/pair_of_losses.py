"""One recipe twice, with cross-entropy alone (lambda = 1) and with HOC: Proposition 1 and the toy of Fig. 3."""

import json
import shutil
from collections.abc import Sequence
from typing import Any

from holdfast.engine.journal import read_events
from holdfast.errors import HoldfastError
from holdfast.recipes.load import read_recipe
from holdfast.recipes.schema import Recipe, check_recipe
from holdfast.run_folder import RunFolder
from holdfast.storage import read_json, replacing_folder, write_text


def both_recipes(source: str, overrides: Sequence[str] = ()) -> dict[str, Recipe]:
    """``{"ce": ..., "hoc": ...}``: the recipe with lambda = 1, and as it stands."""
    hoc = check_recipe(read_recipe(source, overrides))
    if hoc.method != "simplex_hoc" or hoc["method"]["lambda"] == 1:
        raise HoldfastError(f"{source}: needs the method simplex_hoc with lambda below 1, to be compared with lambda 1")
    return {"ce": check_recipe(read_recipe(source, [*overrides, "method.lambda=1.0"])), "hoc": hoc}


def share_first_model(done: RunFolder, other: RunFolder, recipe: Recipe) -> None:
    """Give ``other``, if it does not exist yet, the first model of ``done``: both losses are the same until then."""
    if other.path.exists():
        return
    write_text(other.recipe, recipe.to_toml())
    events = [event for event in read_events(done.log) if event.get("task") == 1]
    write_text(other.log, "".join(json.dumps(event) + "\n" for event in events))
    with replacing_folder(other.model(1)) as temporary:
        shutil.copytree(done.model(1), temporary, dirs_exist_ok=True)


def loss_curves(folder: RunFolder, lambda_: float) -> dict[str, list[float]]:
    """Per epoch of the second task: the loss, and its two terms freed of their weights."""
    events = [event for event in read_events(folder.log) if event["event"] == "epoch" and event["task"] == 2]
    curves = {"loss": [event["loss"] for event in events]}
    for name, weight in (("ce", lambda_), ("nce", 1 - lambda_)):
        if weight > 0:
            curves[name] = [event["terms"][name] / weight for event in events]
    return curves


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
