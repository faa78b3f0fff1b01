"""Tables and notes that fit a terminal: cells over several lines, columns in a second part, nothing cut off."""

from pathlib import Path

import pytest

from papers.stationary import PAGES, Results
from papers.stationary.formatting import plain
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


@pytest.mark.parametrize("name", PAGES)
def test_every_page_fits_eighty_columns_with_all_its_words(name):
    for table in PAGES[name].tables(COMMITTED, EVERYTHING):
        text = plain(table, 80)
        assert not [line for line in text.splitlines() if len(line) > 80]
        words = {word for row in (table.header, *table.rows) for cell in row for word in cell.split()}
        assert words <= set(text.split())
