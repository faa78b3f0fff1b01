"""What goes to stdout, to stderr and to files, for a whole page and for a part of one."""

import json
import re

import pytest
from typer.testing import CliRunner

from holdfast.core.errors import HoldfastError
from papers.stationary import PAGES, Results, Selection
from papers.stationary.__main__ import app
from papers.stationary.html_page import render_html
from papers.stationary.pages import DRAWINGS
from papers.stationary.result_page import EVERYTHING
from papers.stationary.table2 import PAPER, table2_run


@pytest.fixture
def here(tmp_path, fake, monkeypatch):
    """An empty current folder; beside it results enough for pictures of Table 2 and Figure 4."""
    for method, seed in (("cvs", 0), ("simplex_hoc", 0), ("simplex_hoc", 1)):
        fake(table2_run(method, PAPER, 7, seed), tmp_path / "made-up", seed=seed)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def reproduce(*words):
    result = CliRunner().invoke(app, ["reproduce", *words, "--render", "--results", "../made-up"])
    if result.exception:
        raise result.exception
    return result


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("words", [["table2"], ["fig4"], ["all"], ["fig4", "--docs", "d", "--html", "p.html"]])
def test_stdout_is_json_and_nothing_else(words, here):
    assert json.loads(reproduce(*words, "--json").stdout)
    assert all(path.startswith(("d/", "p.html")) for path in files(here))


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_has_no_rows(name, here):
    with pytest.raises(HoldfastError, match=f"{name} is a drawing without rows for --json"):
        reproduce(name, "--json")
    assert not files(here)
    assert json.loads(reproduce(name, "--json", "--dry-run").stdout) == []


def test_a_drawing_goes_into_the_current_folder_and_its_path_is_said(here):
    found = reproduce("fig11")
    assert files(here) == ["fig11.png"]
    assert found.stdout.startswith(f"{here / 'fig11.png'}: ")
    (here / "fig11.png").unlink()
    reproduce("fig11", "--docs", "d")
    assert files(here) == ["d/figures/fig11.png", "d/results/fig11.md"]


@pytest.mark.parametrize("name", ["fig4", "table2"])
def test_other_pictures_are_written_where_they_are_asked_for(name, here):
    found = reproduce(name)
    assert "Pictures: --html FILE or --docs DIR writes them" in found.stderr
    assert not files(here)
    found = reproduce(name, "--docs", "d")
    assert "1 page written in d/results and 1 picture in d/figures" in found.stderr
    assert len(files(here)) == 2
    assert "Pictures" not in reproduce("table8").stderr  # it has none


def test_a_part_comes_without_pictures_of_everything(here):
    found = reproduce("table2", "--seeds", "0", "--docs", "d", "--html", "p.html")
    assert files(here) == ["d/results/table2.md", "p.html"]
    assert "![" not in (here / "d/results/table2.md").read_text()
    assert "<img" not in (here / "p.html").read_text()
    assert "Pictures are left out" in found.stderr
    assert "Pictures" not in reproduce("table2", "--seeds", "0").stderr


@pytest.mark.parametrize(
    ("selection", "footer"),
    [
        (Selection(), "GPU minutes of 3 of 194 runs: 6.0."),
        (Selection(tasks=[7], methods=["cvs"], sets=["paper"]), "GPU minutes of 1 of 3 runs: 2.0."),
        (Selection(tasks=[7], methods=["cvs"], sets=["paper"], seeds=[0]), "GPU minutes of 1 of 1 run: 2.0."),
    ],
)
def test_the_minutes_are_of_what_was_chosen(selection, footer, here):
    tables = PAGES["table2"].tables(Results(here.parent / "made-up"), selection)
    assert [note for table in tables for note in table.notes if note.startswith("GPU minutes")] == [footer]


def test_the_contents_of_the_page_lead_to_its_parts(tmp_path):
    every, nothing = {name: PAGES[name] for name in ("table2", "table8", "search")}, Results(tmp_path)
    page = render_html(every, nothing, EVERYTHING)
    links, parts = re.findall(r'href="#([^"]+)"', page), re.findall(r'<h2 id="([^"]+)"', page)
    assert links == parts == list(every)
    assert "<nav" not in render_html({"table8": PAGES["table8"]}, nothing, EVERYTHING)


def test_code_in_a_note_is_code_on_the_page(here):
    reproduce("table1", "--html", "p.html")
    page = (here / "p.html").read_text()
    assert "Every recipe of the <code>paper</code> set" in page
    assert "`" not in page
