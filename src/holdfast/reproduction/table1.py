"""Table 1: the settings, read from the recipes and put beside the paper's."""

from collections.abc import Mapping
from typing import Any

from holdfast.reproduction.cells import Cell
from holdfast.reproduction.cifar import PAPER_METHODS, paper_cell
from holdfast.reproduction.exhibit import Exhibit, Row, Selection, Table, papers
from holdfast.reproduction.layout import setting
from holdfast.reproduction.results import Results


def _cells() -> list[Cell]:
    return []  # settings need no run


def in_recipe(tables: Mapping[str, Any]) -> dict[str, Any]:
    """What one recipe says about the settings that Table 1 lists and the recipe decides."""
    train, scenario = tables["train"], tables["scenario"]
    return {
        "training set": tables["data"]["train"]["name"],
        "test set": tables["data"]["query"]["name"],
        "backbone": tables["backbone"]["name"],
        "optimiser": train["optimizer"],
        "epochs": train["epochs"],
        "batch size": train["batch_size"],
        "initial rate": train["lr"],
        "rate decays at epochs": [round(fraction * train["epochs"]) for fraction in train["milestones"]],
        "first classes": scenario["initial"],
        "buffer, images per class": scenario["buffer_per_class"],
    }


def _rows(results: Results, selection: Selection) -> list[Row]:
    recipes = {method: paper_cell(method, 7).recipe.tables for method in PAPER_METHODS}
    hoc = recipes["simplex_hoc"]["method"]
    special = {
        "d-Simplex dimensions": hoc["slots"] - 1,
        "lambda of d-Simplex-HOC": hoc["lambda"],
        "rho of d-Simplex-HOC": hoc["rho"],
    }
    rows = []
    for name, value in papers("table1")["settings"].items():
        said = [special[name]] if name in special else [in_recipe(tables).get(name) for tables in recipes.values()]
        here = said[0] if all(other == said[0] for other in said) else "differs between methods"
        rows.append({"setting": name, "paper": value, "here": here})
    return rows


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = [[row["setting"], setting(row["paper"]), setting(row["here"])] for row in _rows(results, selection)]
    notes = (
        "Every recipe of the `paper` set agrees on what is shown. Not in the paper and taken from the authors' code:"
        " momentum 0.9, weight decay 5e-4 on every parameter, unit rows of the d-Simplex, their negatives, means"
        " instead of sums. Networks run in bf16 with losses in float32.",
    )
    return [Table("Settings of CIFAR100/10, CL2R", ["setting", "paper", "recipes"], rows, notes=notes)]


TABLE1 = Exhibit("Table 1: settings of CIFAR100/10", _cells, _rows, _tables)
