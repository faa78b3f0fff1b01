"""Committed results are whole, can be repeated, follow from their matrices, and are what the pages show."""

import fnmatch
import itertools
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.core.environment import BETWEEN_SESSIONS
from holdfast.metrics import compatibility_summary
from holdfast.train.experiments.schema import check_recipe
from papers.stationary import PAGES, Results
from papers.stationary.formatting import markdown
from papers.stationary.plots import fingerprint
from papers.stationary.recipe_files import read_study_recipe
from papers.stationary.result_page import EVERYTHING
from papers.stationary.study_runs import same_run

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
READ = Results(RESULTS)  # reads each file once
TESTED = {"cifar100-10": "cifar10", "iam": "cifar10", "tinyimagenet200-20": "miniimagenet20", "cub180-20": "cub20"}
TESTED_IN_STUDY = {
    "validation": "tinyimagenet32_validation",
    "search": "tinyimagenet32_validation",
    "celeba": "celeba",
    "celeba-none": "celeba",
}
RUNS = sorted(path for family in TESTED for path in RESULTS.glob(f"{family}/*/*.json"))
ARCHIVED = sorted(RESULTS.glob("archive/cifar100-10/*/*.json"))
RUNS_BY_PATH = {run.path.as_posix(): run for page in PAGES.values() for run in page.runs()}


def test_there_are_some():
    assert RUNS
    assert not list(RESULTS.glob("cifar100-10/*.json"))  # every run belongs to a study


def trained_with(path, record):
    """What a recipe of today must say to train as this run was trained: the executor that it names, or else auto.

    Records older than ``environment.executor`` had auto, which then meant the kernels where there were some: for
    ResNet-32, and for the networks of IAM-CL2R since the runs of three architectures.
    """
    older = "fused" if path.parts[-3] == "cifar100-10" or path.parent.name == "architectures" else "graph"
    used = record["environment"].get("executor", older)
    return used if used == "fused" or record["recipe"]["train"]["executor"] == used else "auto"


@pytest.mark.parametrize("path", RUNS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_run(path):
    record = json.loads(path.read_text(encoding="utf-8"))
    recipe = check_recipe(record["recipe"])
    words = shlex.split(record["command"])
    assert words[:2] == ["holdfast", "run"]
    settings = [word for before, word in itertools.pairwise(words) if before == "--set"]
    assert same_run(check_recipe(read_study_recipe(words[2], settings)), recipe)
    assert record["environment"]["commit"]
    assert record["environment"]["gpu"] or path.parent.name == "small"  # meant for two cores
    assert (recipe.method, recipe.seed) == (record["method"], record["seed"])
    planned = RUNS_BY_PATH[path.relative_to(RESULTS).as_posix()]
    assert planned.is_of(record["recipe"])
    assert trained_with(path, record) == planned.recipe["train"]["executor"]
    check_scores(path, record, recipe)


@pytest.mark.parametrize("path", ARCHIVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_archived_run(path):
    """No page reads it. Its recipe is still valid, and its scores follow from its matrices."""
    assert path.relative_to(RESULTS / "archive").as_posix() not in RUNS_BY_PATH
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["environment"]["commit"]
    check_scores(path, record, check_recipe(record["recipe"]))


def check_scores(path, record, recipe):
    if "diverged" in record:
        assert record["diverged"].startswith("the loss became NaN or infinite in task")
        return
    assert record["data"]["open_set"]
    tested = {recipe["data"][split]["name"] for split in ("query", "gallery")}
    assert tested == {TESTED_IN_STUDY.get(path.parent.name, TESTED[path.parts[-3]])}
    asked_for = [name for name in recipe["evaluation"]["protocols"] if name != "mixed"]
    assert asked_for in (["template", "instance"], ["template"])
    assert list(record["protocols"]) == asked_for
    for protocol in asked_for:
        scores = record["protocols"][protocol]
        found = compatibility_summary(np.array(scores["matrix"], dtype=float))
        for name in ("AC", "AA", "ACA"):
            assert scores[name] == (None if np.isnan(found[name]) else pytest.approx(found[name]))


def test_runs_of_one_data_set_saw_the_same_images():
    """Over all studies: what a recipe names as its images has one fingerprint."""
    seen = {}
    for path in [*RUNS, *ARCHIVED, *RESULTS.glob("demo/*.json")]:
        record = json.loads(path.read_text(encoding="utf-8"))
        for split, section in check_recipe(record["recipe"])["data"].items() if "data" in record else ():
            named = (split, json.dumps(section, sort_keys=True))
            seen.setdefault(named, {})[record["data"][split]["fingerprint"]] = path.relative_to(RESULTS).as_posix()
    assert {split for split, _ in seen} == {"train", "query", "gallery"}
    assert not [found for found in seen.values() if len(found) > 1]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name):
    """If this fails: python -m papers.stationary reproduce all --render --docs docs"""
    page = PAGES[name]
    figures = page.figures(READ)
    written = (ROOT / "docs" / "results" / f"{name}.md").read_text(encoding="utf-8")
    assert written == markdown(page.about, page.tables(READ, EVERYTHING), figures)
    for figure in figures:
        with Image.open(ROOT / "docs" / "figures" / f"{figure.name}.png") as picture:
            if figure.data is not None:  # a figure drawn from no results cannot fall behind them
                assert picture.text["Description"] == fingerprint(figure.data), figure.name


@pytest.mark.parametrize(
    "page", ["docs/reproduction.md", "docs/reproduction-details.md", "docs/reproduction-iam.md", "results/README.md"]
)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert ((ROOT / page).parent / link).exists(), link


def test_the_readme_names_what_was_made_from_a_changed_tree():
    named = re.findall(r"`([^`\n]+\.json)`", (RESULTS / "README.md").read_text(encoding="utf-8"))
    for path in RESULTS.rglob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        commit = record.get("environment", record).get("commit") if isinstance(record, dict) else None
        if any(each.endswith("+") for each in (commit or "").split(BETWEEN_SESSIONS)):
            name = path.relative_to(RESULTS).as_posix()
            assert any(fnmatch.fnmatch(name, pattern) for pattern in named), name


def test_the_pilot_is_reproduced():
    """d-Simplex-HOC on real CIFAR, 7 tasks, lambda 0.3: AC of at least 0.8 and AA of at least 44 % by template."""
    path = RESULTS / "archive" / "cifar100-10" / "pilot" / "simplex_hoc-t7-s0.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["recipe"]["method"]["lambda"] == 0.3
    assert record["recipe"]["train"]["epochs"] == 40
    assert record["protocols"]["template"]["AC"] >= 0.8
    assert record["protocols"]["template"]["AA"] >= 0.44


def test_the_small_experiment_over_seeds_is_what_its_page_says():
    by_instance, scores = (
        {
            method: [
                json.loads(path.read_text(encoding="utf-8"))["protocols"][protocol]["AC"]
                for path in sorted((RESULTS / "demo").glob(f"{method}-t6-s*.json"))
            ]
            for method in ("er", "simplex_hoc")
        }
        for protocol in ("instance", "template")
    )
    said_there = " ".join((ROOT / "docs/experiments.md").read_text(encoding="utf-8").split())
    for name, found in zip(("ER", "d-Simplex-HOC"), scores.values()):
        assert len(found) == 5
        assert f"{np.mean(found):.2f}" in said_there, name
        assert f"({min(found):.2f} to {max(found):.2f})" in said_there, name
    table = (ROOT / "docs/experiments.md").read_text(encoding="utf-8")
    for method in scores:
        first = json.loads((RESULTS / "demo" / f"{method}-t6-s0.json").read_text(encoding="utf-8"))["protocols"]
        row = [first["template"]["AC"], 100 * first["template"]["AA"], 100 * first["template"]["ACA"]]
        shown = [f"{row[0]:.3f}", f"{row[1]:.2f}", f"{row[2]:.2f}", f"{first['instance']['AC']:.3f}"]
        (line,) = (line for line in table.splitlines() if line.startswith(f" demo-{method}-t6-s0 "))
        assert line.split()[1:] == shown
    assert set(by_instance["er"]) == {0}
    hoc = by_instance["simplex_hoc"]
    said = f"0.00 at every seed for ER and {np.mean(hoc):.2f} for d-Simplex-HOC ({min(hoc):.2f} to {max(hoc):.2f})"
    assert said in said_there
