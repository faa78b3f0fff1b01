"""The experiments on Table 2: their runs, and what docs/reproduction-details.md says of them."""

import json
from pathlib import Path

import pytest

from papers.stationary import PAGES, Results
from papers.stationary.result_page import EVERYTHING
from papers.stationary.studies.table2_experiments import EXPERIMENTS, ORACLE

ROOT = Path(__file__).parents[2]
PAGE = PAGES["experiments"]


@pytest.fixture(scope="module")
def rows():
    return PAGE.rows(Results(ROOT / "results"), EVERYTHING)


@pytest.fixture(scope="module")
def said():
    return " ".join((ROOT / "docs/reproduction-details.md").read_text(encoding="utf-8").split())


def shown(rows, tasks, about, readout="simplex", name="plain", method="simplex_hoc", aca=False):
    """AC / AA, and ACA if wanted, of one row by template."""
    line = next(r for r in rows if (r["method"], r["tasks"], r["about"]) == (method, tasks, about))
    found = line["readings"][f"{readout} {name} template"]
    text = f"{found['AC']:.2f} / {100 * found['AA']:.1f}"
    return text + (f" / {100 * found['ACA']:.1f}" if aca else "")


def test_every_run_has_its_own_file_and_readings():
    runs = PAGE.runs()
    assert len({run.path for run in runs}) == len(runs) == 63
    assert all(run.measures == ("readings",) and run.study == "experiments" for run in runs)


def test_experiments_are_numbered_as_in_the_list_of_verdicts(said):
    assert [experiment.number for experiment in EXPERIMENTS] == [1, 2, 3, 4, 5, 6]
    assert all(f"| {number}. " in said for number in range(7))


def test_what_is_said_of_the_readout_and_the_length(rows, said):
    assert ", ".join(shown(rows, tasks, "the recipe", "backbone") for tasks in (2, 7, 16, 31)) in said
    assert ", ".join(shown(rows, tasks, "length 20 from the first task") for tasks in (2, 7, 16, 31)) in said
    for length in (16, 25):
        assert f"length {length} has {shown(rows, 7, f'length {length} from the first task')}" in said
    at_16 = [shown(rows, 16, f"length {length} from the first task") for length in (16, 25)]
    assert f"At 16 lengths 16 and 25 have {' and '.join(at_16)}" in said
    fixed = [shown(rows, tasks, "length 20 from the first task", method="simplex_fd") for tasks in (7, 16)]
    assert f"{fixed[0]} at 7 and {fixed[1]} at 16" in said
    at_16 = [shown(rows, 16, f"λ {value}", "backbone") for value in ("0", "0.05", "0.25", "0.5", "1")]
    assert f"λ 0, 0.05, 0.25, 0.5 and 1: {', '.join(at_16[:-1])} and {at_16[-1]} (paper" in said
    fd = [r["readings"]["backbone plain template"]["AC"] for r in rows if r["method"] == "simplex_fd" and r["readings"]]
    assert f"AC at most {max(fd):.2f}" in said


def test_what_is_said_of_the_random_network_and_of_lambda(rows, said):
    about = "λ {}, a random network as the old model of task 1"
    assert f"{shown(rows, 2, about.format(0.1))} at 2 and {shown(rows, 7, about.format(0.1))} at 7" in said
    assert f"with λ 0 {shown(rows, 7, about.format(0))} at 7" in said
    assert f"λ 0.3, ρ 5 with {shown(rows, 7, 'λ 0.3, ρ 5', aca=True)}" in said
    assert f"λ 0.3, ρ 2.5 with {shown(rows, 7, 'λ 0.3, ρ 2.5', aca=True)}" in said
    aa, about = max((r["readings"]["simplex plain template"]["AA"], r["about"]) for r in at_2(rows))
    assert f"the highest AA is {100 * aa:.1f} ({about})" in said


def at_2(rows):
    """The rows of experiment 5 at 2 tasks."""
    return [r for r in rows if r["tasks"] == 2 and r["about"].startswith("λ") and "ρ" in r["about"]]


def test_what_is_said_of_mixed_batches_and_of_the_linear_softmax(rows, said):
    mixed = "batches in proportion"
    er = [shown(rows, tasks, mixed, method="er") for tasks in (2, 7)]
    assert f"ER at 2 and 7: {' and '.join(er)}" in said
    assert f"CVS at 7: {shown(rows, 7, mixed, method='cvs')}" in said
    others = [shown(rows, 7, mixed, method=name).split()[-1] for name in ("lce", "simplex_fd", "simplex_hoc")]
    assert f"AA {others[0]}, {others[1]} and {others[2]}, far below" in said
    at_2 = [shown(rows, 2, mixed, method=name).split()[-1] for name in ("lce", "simplex_hoc")]
    assert f"At 2 LCE-ER and d-Simplex-HOC have AA {' and '.join(at_2)}" in said
    assert next(r for r in rows if (r["method"], r["tasks"], r["about"]) == ("simplex_fd", 2, mixed))["diverged"]
    maps = [shown(rows, tasks, "learned maps", method="lce") for tasks in (2, 7, 16)]
    assert f"Maps at 2, 7 and 16: {maps[0]}, {maps[1]} and {maps[2]}" in said
    linear = [shown(rows, tasks, "linear softmax", method="lce") for tasks in (7, 16)]
    assert f"Linear at 7 and 16: {' and '.join(linear)}" in said
    assert f"cosine at 7 {shown(rows, 7, 'the recipe', method='lce')}" in said


def test_what_is_said_of_rotations(rows, said):
    plain, gallery, other = (
        shown(rows, 7, "λ 0.6, ρ 10", "backbone", name) for name in ("plain", "rotation_gallery", "rotation_other")
    )
    assert f"has {gallery} with it and {plain} without" in said
    assert f"the gain is smaller: {other}." in said


def test_what_is_said_of_the_oracle(said):
    lines = json.loads((ROOT / "results" / ORACLE).read_text(encoding="utf-8"))["rows"]
    best = {
        queries: max(r["template C21"] for r in lines if (r["readout"], r["queries"]) == ("simplex", queries))
        for queries in ("er", "simplex_hoc")
    }
    assert f"has a cross-test of {100 * best['er']:.1f} % on the first simplex gallery" in said
    assert f"has at most {100 * best['simplex_hoc']:.1f} % with any map" in said
    assert best["er"] > 0.4848  # what the row needs


def test_the_tables_mark_what_is_reproduced():
    first = PAGE.tables(Results(ROOT / "results"), EVERYTHING)[0]
    assert ["d-Simplex-HOC", "the recipe", "backbone", "no", "no", "yes", "no"] in first.rows
    by_lambda = {(row[1], row[2]): row[5] for row in first.rows if row[1].startswith("λ") and row[5] and not row[4]}
    assert [about for (about, readout), found in by_lambda.items() if (readout, found) == ("backbone", "yes")] == [
        "λ 0", "λ 0.05", "λ 0.25", "λ 0.5",
    ]  # fmt: skip
    assert all(found == "no" for (_, readout), found in by_lambda.items() if readout == "simplex")


def test_a_run_with_learned_maps_shows_its_own_scores(tmp_path):
    case = next(case for case in EXPERIMENTS[-1].cases if (case.about, case.tasks) == ("learned maps", 7))
    assert case.run.recipe["method"]["transformations"] is True
    scores = {"AC": 0.25, "AA": 0.4515, "ACA": 0.1038}
    protocols = {"template": scores, "instance": {"AC": 0.0, "AA": 0.4, "ACA": 0.0}}
    record = {
        "recipe": dict(case.run.recipe.tables),
        "readings": {"simplex": {"plain": protocols}},
        "protocols": protocols,
    }
    path = tmp_path / case.run.path
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record), encoding="utf-8")
    tables = {table.title.split(":")[0]: table for table in PAGE.tables(Results(tmp_path), EVERYTHING)}
    start = ["7", "LCE-ER", "learned maps"]
    nothing = ["–"] * 5
    assert [*start, "**0.25 45.15 10.38**", *nothing, "0.24 45.15 10.38"] in tables["Experiment 6, by template"].rows
    assert [*start, "0.00 40.00 0.00", *nothing] in tables["Experiment 6, by instance"].rows
    assert ["LCE-ER", "learned maps", "simplex", "", "yes", "", ""] in next(iter(tables.values())).rows
