"""Rows, tables, Markdown, pictures and the page, from results made up for the purpose."""

import json
import re
import statistics
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from holdfast.core.errors import HoldfastError
from papers.run_pages import METHOD_NAMES
from papers.stationary import PAGES, Results, Selection
from papers.stationary.__main__ import app
from papers.stationary.cifar_runs import OURS
from papers.stationary.formatting import commit_note, markdown, plain
from papers.stationary.pages import DRAWINGS
from papers.stationary.plots import fingerprint
from papers.stationary.result_page import EVERYTHING, Table
from papers.stationary.studies.validation_tries import METHODS
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


def test_rows_of_table_eight_have_axis_and_value(some):
    rows = json.loads(reproduce("table8", "--render", "--results", some[0], "--json").stdout)
    assert len(rows) == 18
    found = {(row["axis"], row["value"]) for row in rows if row["seeds"]}
    assert found == {("K", 100), ("lambda", 0.1), ("rho", 5), ("lambda", 0.25), ("lambda", 0.5)}
    assert {row["set"] for row in rows} == {"paper"}
    assert all(row["paper"] for row in rows)


def test_table_two_says_what_code_its_runs_were_made_with(tmp_path, fake):
    for seed, commit in enumerate(("aaaaaaa0", "bbbbbbb", "bbbbbbb")):
        fake(table2_run("simplex_hoc", PAPER, 7, seed), tmp_path, commit=commit)
    fake(table2_run("simplex_hoc", PAPER, 7, order="icarl"), tmp_path, commit=None)
    selection = Selection(methods=["simplex_hoc"], tasks=[7], orders=["natural"])
    row, tuned, rotated = PAGES["table2"].rows(Results(tmp_path), selection)
    assert row["commits"] == ["aaaaaaa0", "bbbbbbb", "bbbbbbb"]
    assert tuned["commits"] == rotated["commits"] == []
    of_paper, _, of_tuned, *_ = PAGES["table2"].tables(Results(tmp_path), selection)
    (note,) = [note for note in of_paper.notes if "commit" in note]
    assert note.startswith("Runs by commit: 2 at bbbbbbb, 1 at aaaaaaa. ")
    assert note.endswith("Compare AC and small differences over several seeds.")
    assert not [note for note in of_tuned.notes if "commit" in note]
    shuffled = Selection(methods=["simplex_hoc"], tasks=[7], orders=["icarl"], sets=["paper"])
    table, *_ = PAGES["table2"].tables(Results(tmp_path), shuffled)
    assert any(note.startswith("Runs by commit: 1 at an unknown one. ") for note in table.notes)


def test_uncommitted_changes_are_seen_in_the_note():
    commits = ["0123456789ab+", "0123456789ab", "0123456789ab+", "fedcba987654+ + 0123456789ab"]
    (note,) = commit_note([{"commits": commits}])
    assert note.startswith("Runs by commit: 2 at 0123456+, 1 at 0123456, 1 at fedcba9+ + 0123456. ")


@pytest.mark.parametrize("name", ["table3", "table4", "search"])
def test_that_fan_reads_through_maps_is_said_where_it_has_a_row(name, tmp_path):
    for method, count in (("fan", 1), ("er", 0)):
        for table in PAGES[name].tables(Results(tmp_path), Selection(methods=[method], orders=["natural"])):
            assert sum("through maps" in note for note in table.notes) == count


@pytest.mark.parametrize("name", ["parts", "front"])
def test_tables_of_both_sets_name_the_set_of_each_row(name, tmp_path):
    rows = PAGES[name].rows(Results(tmp_path), EVERYTHING)
    (table,) = PAGES[name].tables(Results(tmp_path), EVERYTHING)
    assert [line[table.header.index("set")] for line in table.rows] == [row["set"] for row in rows]
    assert {(row["set"], row["method"] == OURS) for row in rows} == {("paper", False), ("tuned", True)}


@pytest.mark.parametrize("name", ["questions", "table8"])
def test_tables_of_one_set_name_it_in_their_titles(name, tmp_path):
    assert {row["set"] for row in PAGES[name].rows(Results(tmp_path), EVERYTHING)} == {"paper"}
    assert all("the paper set" in table.title for table in PAGES[name].tables(Results(tmp_path), EVERYTHING))


@pytest.mark.parametrize("name", PAGES)
def test_a_legend_explains_columns_that_are_there(name, tmp_path):
    for table in PAGES[name].tables(Results(tmp_path), EVERYTHING):
        for note in table.notes:
            explained = re.findall(r"(?:^|\. )(T|n|paper|set): ", note)
            assert not {word for word in explained if not any(head.startswith(word) for head in table.header)}, note


@pytest.mark.parametrize(("name", "data"), [("table3", "mini-imagenet"), ("table4", "CUB_200_2011")])
def test_tables_three_and_four_beside_the_papers_numbers(name, data, tmp_path, fake):
    (run,) = Selection(methods=["simplex_hoc"], tasks=[7]).of(PAGES[name].runs())
    protocols = fake(run, tmp_path)["protocols"]
    record, by_instance = protocols["template"], protocols["instance"]
    rows = json.loads(reproduce(name, "--render", "--results", tmp_path, "--json").stdout)
    count = {"table3": 34, "table4": 33}[name]  # ours has two rows of Table 3 and one of Table 4
    assert len(rows) == count
    (row,) = [row for row in rows if row["seeds"]]
    assert (row["method"], row["tasks"], row["set"], row["order"]) == ("simplex_hoc", 7, "paper", "natural")
    assert {score: row[score] for score in ("AC", "AA", "ACA")} == {
        score: pytest.approx(record[score]) for score in ("AC", "AA", "ACA")
    }
    shown = reproduce(name, "--render", "--results", tmp_path).stdout
    own = f"{record['AC']:.2f}  {100 * record['AA']:.2f}  {100 * record['ACA']:>5.2f}"
    single = f"{by_instance['AC']:.2f} {100 * by_instance['AA']:.2f} {100 * by_instance['ACA']:.2f}"
    theirs = {"table3": "0.81 31.45 25.96", "table4": "0.90 41.50 37.72"}[name]
    assert re.search(rf"^ 7  d-Simplex-HOC +{own}  1  {theirs}  {single}$", shown, re.MULTILINE)
    first = {"table3": "<0.01 19.14 0.05", "table4": "0.07 38.54 3.08"}[name]
    assert re.search(rf"^31  ER +missing +0  {first} +–$", shown, re.MULTILINE)
    assert f"{count - 1} of {count} runs are still missing." in shown
    assert f"`{data}`" in shown
    assert "GPU minutes: 2.0 for 1 run at 7 tasks." in shown


def test_data_that_is_not_there_is_said_once(tmp_path):
    (tmp_path / "results").mkdir()
    words = ["table4", "--tasks", "7", "--device", "cpu", "--quiet", "--results", tmp_path / "results"]
    found = reproduce(*words, "--data", tmp_path, "--out", tmp_path / "runs", status=1)
    assert re.findall(r"failed: .*", found.stderr) == [
        f"failed: {tmp_path}/CUB_200_2011: no such folder; CUB-200-2011 is expected there, as downloaded"
    ]
    assert "and 8 more failed" in found.stderr
    assert "0 of 9 missing runs are done." in found.stderr  # and nothing of going on: they would fail again
    assert "9 of 9 runs are still missing." in found.stdout  # shown before the exit says that it failed


def test_a_plan_counts_what_can_be_counted(tmp_path):
    words = ["--dry-run", "--methods", "er", "--tasks", "7", "--results", tmp_path]
    assert "1 run, 43,200 steps, about 13 minutes of one H200\n" in reproduce("table4", *words).stdout
    faces = reproduce("fig8", "--dry-run", "--methods", "er", "--results", tmp_path).stdout
    assert "2 runs; the networks of 2 were not timed" in faces
    assert "1 run, 39,510 steps, about 1 minute of one H200\n" in reproduce("table3", *words).stdout


def test_a_plan_of_several_pages_says_what_each_takes(tmp_path):
    words = ["all", "--dry-run", "--results", tmp_path]
    rows = json.loads(reproduce(*words, "--json").stdout)
    shown = reproduce(*words).stdout
    by_page = shown[shown.index("Missing by page") :].splitlines()[4:]
    parts = {page: (count, minutes) for page, count, minutes in (line.split() for line in by_page[: by_page.index("")])}
    assert list(parts) == [name for name in PAGES if any(row["page"] == name for row in rows)]
    for page, (count, minutes) in parts.items():
        own = [row["minutes"] for row in rows if row["page"] == page]
        assert (count, minutes) == (str(len(own)), "–" if None in own else f"{sum(own):.1f}")
    assert "fig9" not in parts  # its runs are those of Table 7
    assert sum(int(count) for count, _ in parts.values()) == len(rows)
    assert "Missing by page" not in reproduce("table7", "--dry-run", "--results", tmp_path).stdout


def test_without_a_gpu_it_renders_and_says_so(some):
    result = reproduce("table8", "--results", some[0])
    assert "No GPU here: 13 missing runs stay missing" in result.stderr
    assert "d-Simplex-HOC, CIFAR100/10, 16 tasks: rho" in result.stdout


def test_missing_runs_that_tables_share_are_said_to_be_counted_twice(tmp_path):
    once = "A run that several tables share is counted once here"
    found = reproduce("table2", "--methods", "er", "--tasks", "7", "--seeds", "0", "--results", tmp_path)
    assert "No GPU here: 2 missing runs stay missing" in found.stderr  # one with each executor
    assert found.stdout.count("1 of 1 run is still missing.") == 4  # the paper's and the chosen settings, both twice
    assert once in found.stderr
    assert once not in reproduce("table4", "--results", tmp_path).stderr


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


def test_runs_of_a_dry_run_have_names_of_their_own(tmp_path):
    rows = json.loads(reproduce("all", "--dry-run", "--json", "--results", tmp_path).stdout)
    assert len({row["run"] for row in rows}) == len(rows)
    assert {row["run"].partition("/")[0] for row in rows} >= {"cifar100-10", "iam", "tinyimagenet200-20"}


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


def test_figures_are_those_that_have_something_to_show(some):
    found = {f.name: f for e in PAGES.values() for f in e.figures(Results(some[0])) if f.data is not None}
    assert set(found) == {"fig4-paper", "fig4-tuned", "front", "over-tasks-paper", "over-tasks-tuned", "stride"}
    assert [panel["title"] for panel in found["fig4-paper"].data] == ["CVS", "d-Simplex-HOC"]
    cvs = found["over-tasks-paper"].data["CVS"]
    assert cvs["tasks"] == [2, 7, 16, 31]
    assert [value is None for value in cvs["AA"]] == [True, False, False, True]
    assert [point[0] for point in found["front"].data["d-Simplex-HOC"]] == [0.1, 0.25, 0.5]


def test_what_the_committed_pictures_say_of_our_own_method():
    """Its matrix among those of tuned settings alone, and the mean of its seeds as in the table."""
    committed = Results(Path(__file__).parents[2] / "results")
    ours = "d-Simplex-HOC-Views (ours)"
    fig4 = {figure.name: figure for figure in PAGES["fig4"].figures(committed)}
    shown = {name: [panel["title"] for panel in figure.data] for name, figure in fig4.items()}
    assert shown["fig4-tuned"].count(ours) == 1
    assert ours not in shown["fig4-paper"]
    table2 = {figure.name: figure for figure in PAGES["table2"].figures(committed)}["over-tasks-tuned"]
    (row,) = (
        row
        for row in PAGES["table2"].rows(committed, Selection(methods=[OURS], orders=["natural"], tasks=[7]))
        if row["source"] == WITHOUT
    )
    line = table2.data[ours]
    assert len(row["seeds"]) > 1
    assert line["AA"][line["tasks"].index(7)] == row["AA"]
    assert set(table2.data) == {METHOD_NAMES[method] for method in METHODS}


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


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["table99"], "unknown table or figure 'table99'"),
        (["table2", "--render", "--results", "nowhere"], "nowhere: no such folder"),
        (["table2", "--render", "--order", "random"], "--order 'random': use natural or icarl"),
        (["table2", "--render", "--set-name", "best"], "--set-name 'best': use paper or tuned"),
        (["table2", "--render", "--methods", "nonesuch"], "unknown method 'nonesuch'"),
    ],
)
def test_what_can_be_wrong_is_said_in_one_line(words, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    with pytest.raises(HoldfastError, match=re.escape(reason)):
        reproduce(*words)


def test_nothing_run_is_no_reason_to_fail(tmp_path):
    for name, page in PAGES.items():
        assert all(not row.get("seeds") for row in page.rows(Results(tmp_path), EVERYTHING))
        drawn = [figure.name for figure in page.figures(Results(tmp_path))]
        assert drawn == ([name] if name in DRAWINGS else [])
        assert bool(page.tables(Results(tmp_path), EVERYTHING)) == (name not in DRAWINGS)
