"""What goes to stdout, to stderr and to files, for a whole page and for a part of one."""

import json

import pytest
from typer.testing import CliRunner

from papers.stationary.__main__ import app
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


def test_a_drawing_goes_into_the_current_folder_and_its_path_is_said(here):
    found = reproduce("fig11")
    assert files(here) == ["fig11.png"]
    assert found.stdout.startswith(f"{here / 'fig11.png'}: ")
    (here / "fig11.png").unlink()
    reproduce("fig11", "--docs", "d")
    assert files(here) == ["d/figures/fig11.png", "d/results/fig11.md"]


def test_code_in_a_note_is_code_on_the_page(here):
    reproduce("table1", "--html", "p.html")
    page = (here / "p.html").read_text()
    assert "Every recipe of the <code>paper</code> set" in page
    assert "`" not in page
