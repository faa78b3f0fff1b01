"""Rows, tables, Markdown, pictures and the page, from results made up for the purpose."""

import json
import re
import statistics

import pytest
from PIL import Image
from typer.testing import CliRunner

from papers.stationary import PAGES, Results, Selection
from papers.stationary.__main__ import app
from papers.stationary.formatting import markdown, plain
from papers.stationary.plots import fingerprint
from papers.stationary.result_page import Table
from papers.stationary.table2 import PAPER, WITHOUT, table2_run


def reproduce(*words, status=0):
    result = CliRunner(env={"COLUMNS": None}).invoke(app, ["reproduce", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def some(tmp_path, fake):
    """HOC at 7 tasks with three seeds, CVS with one, FAN and CVS with chosen settings, and one value of lambda."""
    root = tmp_path / "results"
    records = [fake(table2_run("simplex_hoc", PAPER, 7, seed), root, seed=seed) for seed in (0, 1, 2)]
    fake(table2_run("cvs", PAPER, 7), root, rising=-0.01)
    fake(table2_run("cvs", PAPER, 16), root, rising=-0.01)
    for method in ("fan", "cvs"):
        fake(table2_run(method, WITHOUT, 7), root)
    for run in PAGES["table8"].runs():
        if run.change in ("", "lambda-0.25", "lambda-0.5"):
            fake(run, root)
    return root, records


def test_a_row_is_the_mean_and_spread_over_its_seeds(some):
    root, records = some
    words = ["table2", "--render", "--results", root, "--methods", "simplex_hoc", "--tasks", "7", "--json"]
    rows = json.loads(reproduce(*words, "--order", "natural", "--set-name", "paper").stdout)
    (row,) = rows
    assert {key: row[key] for key in ("method", "tasks", "set", "order", "seeds", "missing")} == {
        "method": "simplex_hoc", "tasks": 7, "set": "paper", "order": "natural", "seeds": [0, 1, 2], "missing": [],
    }  # fmt: skip
    for name in ("AC", "AA", "ACA"):
        values = [record["protocols"]["template"][name] for record in records]
        assert row[name] == pytest.approx(sum(values) / 3)
        assert row["sd"][name] == pytest.approx(statistics.stdev(values))
    assert row["paper"] == pytest.approx({"AC": 0.86, "AA": 0.48211, "ACA": 0.4241})
    assert row["files"] == [f"cifar100-10/table2/simplex_hoc-t7-natural-s{seed}-as-is.json" for seed in (0, 1, 2)]


def test_what_was_not_run_is_missing(some):
    rows = json.loads(reproduce("table2", "--render", "--results", some[0], "--json").stdout)
    assert len(rows) == 3 * 40 + 2 * 4  # settings of three sources; two methods in iCaRL's order, twice
    for row in rows:
        assert {"method", "tasks", "set", "order", "seeds", "AC", "AA", "ACA", "paper"} <= set(row)
        assert bool(row["seeds"]) == (row["AC"] is not None)
    shown = reproduce("table2", "--render", "--results", some[0], "--set-name", "paper", "--order", "natural").stdout
    assert re.search(r"^ 7  ER +0 +missing +0\.19 46\.75 7\.79", shown, re.MULTILINE)
    three = r"\d\.\d\d \d\d\.\d\d \d\d\.\d\d"
    found = rf"^ 7  d-Simplex-HOC +3  \d\.\d\d±\d\.\d\d .* 0\.86 48\.21 42\.41 .*  {three}$"
    assert re.search(found, shown, re.MULTILINE)


@pytest.mark.parametrize("name", ["table3", "table4", "search"])
def test_that_fan_reads_through_maps_is_said_where_it_has_a_row(name, tmp_path):
    for method, count in (("fan", 1), ("er", 0)):
        for table in PAGES[name].tables(Results(tmp_path), Selection(methods=[method], orders=["natural"])):
            assert sum("through maps" in note for note in table.notes) == count


def test_without_a_gpu_it_renders_and_says_so(some):
    result = reproduce("table8", "--results", some[0])
    assert "No GPU here: 13 missing runs stay missing" in result.stderr
    assert "d-Simplex-HOC, CIFAR100/10, 16 tasks: rho" in result.stdout


def test_a_dry_run_lists_what_is_missing(some):
    words = ["table2", "--dry-run", "--results", some[0], "--methods", "cvs", "--seeds", "0", "--set-name", "paper"]
    plan = json.loads(reproduce(*words, "--json").stdout)
    assert [row["run"] for row in plan] == [
        f"cifar100-10/table2/cvs-{name}-s0-as-is" for name in ("t31-natural", "t2-natural")
    ]
    assert plan[0]["steps"] == 43_890
    assert plan[0]["minutes"] == pytest.approx(43_890 * 0.0008 / 60)
    assert sum(row["steps"] for row in plan) == 43_890 + 27_440 == 71_330
    assert "2 runs, 71,330 steps, about 1 minute" in reproduce(*words).stdout


def test_docs_and_page(some, tmp_path):
    reproduce("front", "--render", "--results", some[0], "--docs", tmp_path / "docs", "--html", tmp_path / "page.html")
    (figure,) = PAGES["front"].figures(Results(some[0]))
    picture = Image.open(tmp_path / "docs" / "figures" / "front.png")
    assert picture.text["Description"] == fingerprint(figure.data)
    assert f"![{figure.caption}](../figures/front.png)" in (tmp_path / "docs" / "results" / "front.md").read_text()
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/png;base64,") == 1
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "<script" not in page
    assert "d-Simplex-HOC" in page


def test_a_selection_reaches_the_tables(some):
    selection = Selection(methods=["simplex_hoc"], sets=["tuned"], orders=["icarl"])
    table, *goals = PAGES["table2"].tables(Results(some[0]), selection)
    assert [row[0] for row in table.rows] == ["7", "16"]
    assert [table.title for table in goals] == ["Goals"]


def test_markdown_and_plain_text_by_hand():
    table = Table("Title", ["a|b", "n"], [["x", "1.0"], ["long", "10.0"]], right=(1,), notes=("A note.",))
    assert markdown("Page", [table]) == (
        "# Page\n\n## Title\n\n| a\\|b | n |\n| --- | --: |\n| x | 1.0 |\n| long | 10.0 |\n\nA note.\n"
    )
    assert plain(table) == "Title\n\na|b      n\n──────────\nx      1.0\nlong  10.0\n\nA note."
