"""Tables 1 and 5: the settings of CL2R and of IAM-CL2R, read from the recipes, beside the paper's."""

from collections.abc import Mapping
from typing import Any

from papers.stationary.cifar_runs import PAPER_METHODS
from papers.stationary.formatting import settings_table
from papers.stationary.iam_runs import classes_of
from papers.stationary.recipe_files import read_study_recipe
from papers.stationary.result_page import ResultPage, Row, Selection, Table, printed_in_paper
from papers.stationary.results import Results
from papers.stationary.study_runs import StudyRun

FAMILIES = {"CIFAR100/10": "cifar100-10", "TinyImageNet200/20": "tinyimagenet200-20", "CUB180/20": "cub180-20"}
"""Column of the table -> folder of its recipes."""

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


def _runs() -> list[StudyRun]:
    return []  # settings need no run


def in_recipe(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of Table 1 that a recipe contains, with their values."""
    train, scenario = tables["train"], tables["scenario"]
    return {
        "training set": tables["data"]["train"]["name"],
        "test set": tables["data"]["query"]["name"],
        "backbone": tables["backbone"]["name"],
        # Without a crop the reader scales to the size. CIFAR's images have a fixed size.
        "input size": train["resized_crop"] or tables["data"]["train"].get("size"),
        "optimiser": train["optimizer"],
        "epochs": train["epochs"],
        "batch size": train["batch_size"],
        "initial rate": train["lr"],
        "rate decays at epochs": [round(fraction * train["epochs"]) for fraction in train["milestones"]],
        "first classes": scenario["initial"],
        "buffer, images per class": scenario["buffer_per_class"],
    }


def _table1_rows(results: Results, selection: Selection) -> list[Row]:
    return [
        {"data": data, "setting": name, "paper": value, "here": here}
        for data, settings in printed_in_paper("table1").items()
        for (name, value), here in zip(settings.items(), _said(FAMILIES[data], list(settings)))
    ]


def _said(family: str, settings: list[str]) -> list[Any]:
    """The value of each of ``settings`` in the recipes of a data set; None if it is not a setting of recipes."""
    recipes = {
        method: StudyRun("paper", f"{family}/{method}", method, 7, family=family).recipe.tables
        for method in PAPER_METHODS
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


def _table1_tables(results: Results, selection: Selection) -> list[Table]:
    every = _table1_rows(results, selection)
    return [
        settings_table(f"Settings of {data}, CL2R", [r for r in every if r["data"] == data], NOTES[data])
        for data in FAMILIES
    ]


TABLE1 = ResultPage("Table 1: settings of CL2R", _runs, _table1_rows, _table1_tables)


RECIPES = {
    "CIFAR100R/10": ("iam/cifar100r", "pretrain/tinyimagenet32"),
    "CelebA": ("iam/celeba", "pretrain/casia_webface"),
}
"""Per column of the table the recipe that fine-tunes, and the one that pre-trains its models."""

TASKS = {"CIFAR100R/10": [7, 31], "CelebA": [16]}
"""Numbers of tasks of the first recipe, which names one of them."""


def in_recipes(column: str) -> dict[str, Any]:
    """The settings of Table 5 that the two recipes of a column contain, with their values."""
    tune, pre = (read_study_recipe(name) for name in RECIPES[column])
    scenario, train = tune["scenario"], tune["data"]["train"]
    assert scenario["tasks"] in TASKS[column]
    said = {
        "pre-training set": pre["data"]["name"],
        "pre-training classes": classes_of(scenario["model"]),
        "fine-tuning set": train["name"],
        "fine-tuning images per class": train.get("images_per_class"),
        "test set": tune["data"]["query"]["name"],
        "backbone": pre["backbone"]["name"],
        "input size": train.get("size"),
        "slots K of the d-Simplex": tune["method"]["slots"],
        "fine-tuning tasks": TASKS[column],
        "first classes": scenario["initial"],
        "replacements at classes": scenario["replace_at_classes"],
        "classes of the replacements": [classes_of(name) for name in scenario["replace_with"]],
        "buffer, images per class": scenario["buffer_per_class"],
        "lambda of d-Simplex-HOC": tune["method"]["lambda"],
        "rho of d-Simplex-HOC": tune["method"]["rho"],
    }
    for phase, tables in (("pre-training", pre), ("fine-tuning", tune)):
        options = {"optimizer": "sgd", **tables["train"]}
        for name, key in (
            ("optimiser", "optimizer"),
            ("epochs", "epochs"),
            ("batch size", "batch_size"),
            ("initial rate", "lr"),
            ("schedule", "schedule"),
        ):
            said[f"{phase}: {name}"] = options[key]
    return said


def _table5_rows(results: Results, selection: Selection) -> list[Row]:
    return [
        {"column": column, "setting": name, "paper": value, "here": in_recipes(column).get(name)}
        for column, settings in printed_in_paper("table5").items()
        for name, value in settings.items()
    ]


def _table5_tables(results: Results, selection: Selection) -> list[Table]:
    every = _table5_rows(results, selection)
    notes = {
        "CIFAR100R/10": (
            "ImageNet32 is not at hand; `pretrain/imagenet32` has the paper's settings for whoever has it. The schedule"
            " of fine-tuning is the authors' code's, a cosine to 1e-5; the paper's text has steps at epochs 50 and 64."
            " The paper states neither momentum nor weight decay: 0.9 and 5e-4, as in the authors' code.",
        ),
        "CelebA": ("Not run: neither the data nor DINOv3's weights are at hand.",),
    }
    return [
        settings_table(f"Settings of {column}, IAM-CL2R", [r for r in every if r["column"] == column], notes[column])
        for column in RECIPES
    ]


TABLE5 = ResultPage("Table 5: settings of IAM-CL2R", _runs, _table5_rows, _table5_tables)
