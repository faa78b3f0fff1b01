"""Table 1: the settings, read from the recipes and put beside the paper's."""

from collections.abc import Mapping
from typing import Any

from holdfast.reproduction.cells import Cell
from holdfast.reproduction.cifar import PAPER_METHODS
from holdfast.reproduction.exhibit import Exhibit, Row, Selection, Table, papers
from holdfast.reproduction.layout import settings_table
from holdfast.reproduction.results import Results

FAMILIES = {"CIFAR100/10": "cifar100-10", "TinyImageNet200/20": "tinyimagenet200-20", "CUB180/20": "cub180-20"}
"""Per column of the table the folder of its recipes."""

ALL_THREE = (
    "Every recipe of the `paper` set agrees on what is shown. Not in the paper and taken from the authors' code:"
    " momentum 0.9, weight decay 5e-4 on every parameter, unit rows of the d-Simplex, their negatives, means"
    " instead of sums. Networks run in bf16 with losses in float32."
)
NOTES = {
    "CIFAR100/10": (ALL_THREE,),
    "TinyImageNet200/20": ("As above. table3 has the scores, or says which data they need.",),
    "CUB180/20": (
        "As above. table4 has the scores, or says which data they need. Queries are CUB's test split and the"
        " gallery its train split, as these counts demand.",
    ),
}


def _cells() -> list[Cell]:
    return []  # settings need no run


def in_recipe(tables: Mapping[str, Any]) -> dict[str, Any]:
    """What one recipe says about the settings that Table 1 lists and the recipe decides."""
    train, scenario = tables["train"], tables["scenario"]
    return {
        "training set": tables["data"]["train"]["name"],
        "test set": tables["data"]["query"]["name"],
        "backbone": tables["backbone"]["name"],
        # Where nothing is cut to size, the reader scales to it; CIFAR's has no choice, and the data decides.
        "input size": train["resized_crop"] or tables["data"]["train"].get("size"),
        "optimiser": train["optimizer"],
        "epochs": train["epochs"],
        "batch size": train["batch_size"],
        "initial rate": train["lr"],
        "rate decays at epochs": [round(fraction * train["epochs"]) for fraction in train["milestones"]],
        "first classes": scenario["initial"],
        "buffer, images per class": scenario["buffer_per_class"],
    }


def _rows(results: Results, selection: Selection) -> list[Row]:
    return [
        {"data": data, "setting": name, "paper": value, "here": here}
        for data, settings in papers("table1").items()
        for (name, value), here in zip(settings.items(), _said(FAMILIES[data], list(settings)))
    ]


def _said(family: str, settings: list[str]) -> list[Any]:
    """What the recipes of one data set say about each of ``settings``; None where that is not theirs to say."""
    recipes = {
        method: Cell("paper", f"{family}/{method}", method, 7, family=family).recipe.tables for method in PAPER_METHODS
    }
    hoc = recipes["simplex_hoc"]["method"]
    special = {
        "d-Simplex dimensions": hoc["slots"] - 1,
        "lambda of d-Simplex-HOC": hoc["lambda"],
        "rho of d-Simplex-HOC": hoc["rho"],
    }
    every = [{**in_recipe(tables), **special} for tables in recipes.values()]
    found = [[said.get(name) for said in every] for name in settings]
    return [said[0] if all(other == said[0] for other in said) else "differs between methods" for said in found]


def _tables(results: Results, selection: Selection) -> list[Table]:
    every = _rows(results, selection)
    return [
        settings_table(f"Settings of {data}, CL2R", [r for r in every if r["data"] == data], NOTES[data])
        for data in FAMILIES
    ]


TABLE1 = Exhibit("Table 1: settings of CL2R", _cells, _rows, _tables)
