"""One thing is told in the singular, wherever a count meets its noun."""

import re

import pytest
from typer.testing import CliRunner

from holdfast.cli.start import _class_counts
from holdfast.core.wording import are, counted, have
from holdfast.reports.check_text import basis_sentence, evidence_sentences
from papers.stationary.__main__ import app as study

NOUNS = "classes|queries|runs|items|images|vectors|models|versions|pairs|steps|minutes|processes|threads|updates"
WRONG = re.compile(rf"(?<![\d,.])1 (?:[a-z-]+ )?(?:{NOUNS})\b")


@pytest.mark.parametrize(("number", "noun", "text"), [(1, "run", "1 run"), (2, "query", "2 queries")])
def test_counted(number, noun, text):
    assert counted(number, noun) == text


def test_verbs():
    assert [are(0), are(1), are(2)] == ["are", "is", "are"]
    assert [have(0), have(1), have(2)] == ["have", "has", "have"]


def test_what_a_check_says():
    record = {
        "kind": "check",
        "queries": 1,
        "classes": 1,
        "gallery": 1,
        "protocol": "instance",
        "clustered": False,
        "changes": {"lost": 1, "gained": 1, "p_value": 1.0},
    }
    assert basis_sentence(record).startswith("1 query of 1 class, 1 gallery item, ")
    assert "1 query was right and becomes wrong" in evidence_sentences(record)[0]


def test_what_a_version_says():
    assert _class_counts({"classes": 1, "new_classes": 1}) == "1 new class"
    assert _class_counts({"classes": 3, "new_classes": 1}) == "1 new and 2 known classes"
    assert _class_counts({"classes": 2, "new_classes": 1}) == "1 new and 1 known class"
    assert _class_counts({"classes": 4, "new_classes": 0}) == "4 known classes"


def test_commands_at_tiny_sizes(tmp_path, holdfast):
    (tmp_path / "one.csv").write_text("0.5\n")
    text = holdfast("evaluate", tmp_path / "one.csv")
    assert "1 model" in text
    words = ["reproduce", "table4", "--dry-run", "--methods", "er", "--tasks", "7", "--results", str(tmp_path)]
    plan = CliRunner(env={"COLUMNS": "80"}).invoke(study, words).stdout
    assert "1 run" in plan
    assert not WRONG.findall(text + plan)
