"""Tables and notes that fit a terminal: cells over several lines, columns in a second part, nothing cut off."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from papers.stationary import PAGES, Results
from papers.stationary.__main__ import app
from papers.stationary.formatting import markdown, plain
from papers.stationary.result_page import EVERYTHING, Table

RESULTS = Path(__file__).parents[2] / "results"
COMMITTED = Results(RESULTS)
NOTE = "A note of more words than one line of so narrow a terminal has room for."


def test_words_are_wrapped_by_hand():
    table = Table("Title", ["n", "what was changed"], [["1.0", "one or two words"], ["10.0", "x"]], (0,), (NOTE,))
    assert plain(table, 14).splitlines() == [
        "Title", "",
        "   n  what was",
        "      changed",
        "──────────────",
        " 1.0  one or",
        "      two",
        "      words",
        "10.0  x", "",
        "A note of more", "words than one", "line of so", "narrow a", "terminal has", "room for.",
    ]  # fmt: skip


def test_numbers_that_belong_together_go_into_a_second_part():
    table = Table("Title", ["T", "method", "AC", "by instance"], [["7", "ER", "0.50", "0.10 45.10 3.20"]], (0, 2))
    assert plain(table, 26).splitlines() == [
        "Title", "",
        "T  method    AC", "───────────────", "7  ER      0.50", "",
        "T  method  by instance", "──────────────────────────", "7  ER      0.10 45.10 3.20",
    ]  # fmt: skip
    assert plain(table, 80) == plain(table)


@pytest.mark.parametrize("name", PAGES)
def test_every_page_fits_eighty_columns_with_all_its_words(name):
    for table in PAGES[name].tables(COMMITTED, EVERYTHING):
        text = plain(table, 80)
        assert not [line for line in text.splitlines() if len(line) > 80]
        words = {word for row in (table.header, *table.rows) for cell in row for word in cell.split()}
        assert words <= set(text.split())


def test_the_terminal_says_how_wide_it_is():
    def lines(columns, *words):
        invoked = ["reproduce", "table8", "--render", "--results", str(RESULTS), *words]
        return CliRunner(env={"COLUMNS": columns}).invoke(app, invoked).stdout.splitlines()

    assert max(map(len, lines("80"))) <= 80
    assert max(map(len, lines("100"))) in range(81, 101)
    whole = max(note for table in PAGES["table8"].tables(COMMITTED, EVERYTHING) for note in table.notes)
    assert whole in lines(None)  # into a file or a pipe
    assert whole in lines("80", "--markdown")
    assert whole in markdown("", PAGES["table8"].tables(COMMITTED, EVERYTHING)).splitlines()
