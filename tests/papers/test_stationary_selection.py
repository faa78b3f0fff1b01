"""A selection that leaves nothing is refused with what there is; of everything it leaves what it fits."""

import pytest
from typer.testing import CliRunner

from holdfast.core.errors import HoldfastError
from papers.stationary import PAGES, Results, Selection
from papers.stationary.__main__ import app
from papers.stationary.result_page import matching

PAPERS = "er, fan, bct, lce, advbct, cvs, simplex_fd, simplex_hoc"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("table2 --tasks 3", "--tasks 3 chooses nothing: table2 has tasks 2, 7, 16, 31"),
        ("table2 --seeds 9", "--seeds 9 chooses nothing: table2 has seeds 0, 1, 2"),
        ("table2 --methods cosine_hoc", f": table2 has methods {PAPERS}, distillation, simplex_hoc_views"),
        ("table8 --methods er", "--methods er chooses nothing: table8 has methods simplex_hoc"),
        ("table8 --tasks 7", ": table8 has tasks 16"),
        ("table8 --methods er --tasks 7", ": table8 has methods simplex_hoc; tasks 16"),
        ("fig4 --methods er", ": fig4 has methods cvs, bct, simplex_fd, simplex_hoc, fan, simplex_hoc_views"),
        ("stride --methods fan", ": stride has methods simplex_hoc, er"),
        (
            "table2 --methods simplex_hoc --tasks 31 --order icarl",
            "--methods simplex_hoc --tasks 31 --order icarl chooses nothing: with all but one of these table2 has"
            " tasks 7, 16, or orders natural",
        ),
        ("fig4 --order icarl", ": fig4 has orders natural"),
        ("table8 --set-name tuned", ": table8 has sets paper"),
        ("table1 --tasks 7", "--tasks 7 chooses nothing: table1 has no runs to choose from and is shown whole;"),
        ("fig1 --methods er", "--methods er chooses nothing: fig1 has no runs to choose from"),
        ("all --tasks 3", "--tasks 3 chooses nothing: the tables and figures have tasks 2, 7, 16, 31"),
    ],
)
@pytest.mark.parametrize("mode", ["--render", "--json", "--dry-run"])
def test_nothing_chosen_is_refused(words, reason, mode, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    result = CliRunner().invoke(app, ["reproduce", *words.split(), mode])
    assert isinstance(result.exception, HoldfastError)
    assert reason in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.parametrize("selection", [Selection(tasks=[7]), Selection(methods=["er"]), Selection(sets=["tuned"])])
def test_what_is_left_has_rows_and_what_is_left_out_has_none(selection, tmp_path):
    left = matching(PAGES, selection)
    for name, page in PAGES.items():
        rows = [row for row in page.rows(Results(tmp_path), selection) if "missing" in row]
        assert bool(rows) == (name in left), name


def test_nothing_is_said_where_everything_is_there(tmp_path):
    words = f"reproduce table2 --tasks 2,7 --seeds 0,1 --render --json --results {tmp_path}"
    assert CliRunner().invoke(app, words.split()).stderr == ""
