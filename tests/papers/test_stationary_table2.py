"""Table 2: the settings are those that page ``search`` chose; its tables from made-up results."""

import re
from pathlib import Path

from papers.run_pages import METHOD_NAMES
from papers.stationary import PAGES, Results
from papers.stationary.cifar_runs import OURS
from papers.stationary.result_page import EVERYTHING, Selection
from papers.stationary.studies.validation_tries import METHODS
from papers.stationary.table2 import CHOSEN, WITH, WITHOUT, near_the_paper, settings_of

PAGE = PAGES["table2"]
RESULTS = Path(__file__).parents[2] / "results"


def test_the_settings_are_those_that_the_tries_chose():
    rows = PAGES["search"].rows(Results(RESULTS), EVERYTHING)
    chosen = {(row["method"], by): tuple(row["settings"]) for row in rows for by in row["chosen"]}
    assert chosen == {(method, by): CHOSEN[method][by] for method in METHODS for by in (WITHOUT, WITH)}


def test_the_runs():
    runs = PAGE.runs()
    assert len({run.path for run in runs}) == 194
    graph = [run for run in runs if run.recipe["train"]["executor"] == "graph"]
    assert {(run.method, run.tasks) for run in graph} == {("er", 7), ("simplex_hoc", 7)}
    assert len(graph) == 6
    runs = [run for run in runs if run not in graph]
    assert all(run.measures == ("bridged",) and run.recipe["train"]["executor"] == "fused" for run in runs)
    assert {run.recipe["data"]["query"]["name"] for run in runs} == {"cifar10"}
    seeds = {(run.method, run.tasks): set() for run in runs}
    for run in runs:
        seeds[run.method, run.tasks].add(run.seed)
    assert set(seeds) == {(method, tasks) for method in METHODS for tasks in (2, 7, 16, 31)}
    assert all(seeds[method, tasks] == {0, 1, 2} for method in METHODS for tasks in (7, 16))
    assert {method for method in METHODS if len(seeds[method, 31]) == 3} == {
        "er", "cvs", "fan", "distillation", "simplex_hoc", OURS,
    }  # fmt: skip


def test_the_papers_settings_are_those_of_the_recipes():
    assert all(settings_of(method, "paper") == () for method in METHODS if method != OURS)
    assert settings_of(OURS, "paper") == CHOSEN[OURS][WITHOUT]


def test_what_the_summary_calls_reproduced_is_near_the_paper():
    """docs/reproduction.md, "Reproduced": the same rows as those after ≈ in the table."""
    page = " ".join((RESULTS.parent / "docs/reproduction.md").read_text(encoding="utf-8").split())
    (said,) = re.findall(r"\*\*Reproduced\*\* \(.*?\): (.*?)\. The protocol", page)
    summary = set()
    for part in said.split("; "):
        methods, _, counts = part.removesuffix(" tasks").partition(" at ")
        summary |= {(name, int(tasks)) for name in methods.split(" and ") for tasks in re.findall(r"\d+", counts)}
    rows = [row for row in PAGE.rows(Results(RESULTS), Selection(orders=["natural"])) if row["source"] == "paper"]
    assert summary == {(METHOD_NAMES[row["method"]], row["tasks"]) for row in rows if near_the_paper(row)}


def test_by_instance_and_in_another_order_as_the_methods_page_says():
    page = " ".join((RESULTS.parent / "docs/methods/README.md").read_text(encoding="utf-8").split())
    rows = {
        (row["method"], row["order"], row["tasks"]): row
        for row in PAGE.rows(Results(RESULTS), Selection(methods=[OURS, "simplex_hoc"], sets=["paper"]))
    }
    ours, theirs = (
        [rows[method, "natural", tasks]["instance"] for tasks in (7, 16, 31)] for method in (OURS, "simplex_hoc")
    )
    ac = [row["AC"] for row in (*theirs, *ours)]
    more = [100 * (own["AA"] - other["AA"]) for own, other in zip(ours, theirs)]
    said = (
        "is {:.2f}, {:.2f} and {:.2f}; that of `simplex_hoc_views` is {:.2f}, {:.2f} and {:.2f},"
        " with {:.1f}, {:.1f} and {:.1f} points more AA"
    )
    assert said.format(*ac, *more) in page
    shuffled = [rows[method, "icarl", tasks]["AC"] for method in (OURS, "simplex_hoc") for tasks in (7, 16)]
    assert "(AC {:.2f} and {:.2f} at 7 and 16 tasks against {:.2f} and {:.2f}, one seed)".format(*shuffled) in page
