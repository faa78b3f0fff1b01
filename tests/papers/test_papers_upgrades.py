"""The study of upgrades: its page comes from its records, and its weights from other collections."""

import json
from pathlib import Path

import pytest

from holdfast.checks.comparison import bridge_candidates
from papers.upgrades.candidate_rule import candidate_counts, candidates_for, first_enough, fitted_share, reached
from papers.upgrades.page import written
from papers.upgrades.sets import smart_records, write_smart
from papers.upgrades.weights import best_weight, default_weight, weight_of_others

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "upgrades"


def test_the_page_is_what_the_records_say():
    assert written(RESULTS) == (ROOT / "docs" / "results" / "serving-both.md").read_text(encoding="utf-8")


def test_compare_takes_the_rule_that_was_fixed():
    sizes = json.loads((RESULTS / "serving-both.json").read_text(encoding="utf-8"))["sizes"]
    share = fitted_share(sizes)
    for items in (300, 1_000, 5_183, 10_000):
        assert bridge_candidates(items) == candidates_for(share, items)
    assert bridge_candidates(10**6) == 1_000


def test_the_rule_is_the_smallest_share_that_is_enough_on_the_sets_that_it_is_fixed_on():
    counts = candidate_counts(1_000)

    def size(name, enough):
        draw = [0.6 if count >= enough else 0.5 for count in counts]
        return {"name": [name, "a", "b"], "items": 1_000, "counts": counts, "scores": [draw] * 5, "re-embed": 0.6}

    sizes = [size("cacm", 60), size("scifact-log", 90), size("scifact", 200)]
    assert fitted_share(sizes) == 0.1
    assert [first_enough(part) for part in sizes] == [60, 100, 200]
    assert reached(sizes[2], 0.1).tolist() == [False] * 5


def case(name, gains):
    ways = {f"old@50 {weight:g}": {"gain": [gain, 0, 0]} for weight, gain in gains.items()}
    return {"name": [name, "a", "b"], "ways": ways}


def test_a_collection_has_no_part_in_its_own_weight():
    cases = [
        case("cacm", {0.5: 0.9, 1.0: 0.0}),
        case("cranfield", {0.5: 0.1, 1.0: 0.2}),
        case("scifact", {0.5: 0.9, 1.0: 0.0}),
        case("scifact-log", {0.5: 0.0, 1.0: 0.3}),
    ]
    assert weight_of_others(cases, "cacm") == 1.0
    assert weight_of_others(cases, "scifact") == 0.5  # CACM and Cranfield; its own log has no part
    assert best_weight(cases[1:2], "old@50 ") == 1.0
    assert default_weight(cases) == pytest.approx(0.5)


SMART = """.I 1
.T
a title
.W
a title
and a text .
.I 2
.T
empty
.W

"""


def test_collections_in_smart_s_format_are_read(tmp_path):
    assert smart_records(SMART)[0] == {"id": "1", "T": "a title", "W": "a title and a text ."}
    for name, text in (("all", SMART), ("qry", ".I 007\n.W\na question\n"), ("rel", "1 1 1\n1 2 2\n1 3 -1\n")):
        (tmp_path / name).write_text(text)
    write_smart(tmp_path / "out", *(tmp_path / name for name in ("all", "qry", "rel")), cranfield=True)
    lines = (tmp_path / "out" / "documents.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"id": "1", "text": "a title and a text ."}]
    # Queries are numbered by their place, 1 is the best grade, and a document without a text is left out.
    assert json.loads((tmp_path / "out" / "qrels.json").read_text()) == {"1": {"1": 4}}
