"""Every page of help at 80 columns: no line is wider, and no summary of a command is cut off."""

import re
import shlex

import pytest
import typer
from typer.testing import CliRunner

from holdfast.cli import app, show
from papers.stationary import PAGES as RESULT_PAGES
from papers.stationary.__main__ import app as study


def _pages(command, words=()):
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from _pages(inner, (*words, name))


PAGES = list(_pages(typer.main.get_command(app)))


def test_every_verb_has_a_page():
    assert {("demo",), ("gallery", "add"), ("slots",)} < set(PAGES)


def test_everything_that_can_be_reproduced_is_listed_in_the_papers_order():
    text = CliRunner(env={"COLUMNS": "80"}).invoke(study, ["reproduce", "--help"]).stdout
    listed = re.findall(r"^ {4}(\w+) +\S", text.partition("NAME is one of:")[2], re.MULTILINE)
    assert sorted(listed) == sorted([*RESULT_PAGES, "all"])
    numbered = [f"table{i}" for i in range(1, 9)] + [f"fig{i}" for i in range(1, 13)]
    assert listed[: len(numbered)] == numbered


@pytest.mark.parametrize("words", PAGES, ids=lambda words: shlex.join(words) or "holdfast")
def test_nothing_is_cut_off(words):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    assert not [line for line in result.stdout.splitlines() if len(line) > 80]
    _, _, summaries = result.stdout.partition("\nCommands:\n")
    cut = [line for line in summaries.splitlines() if re.search(r"(\.\.\.|…)$", line)]
    assert not cut


def test_an_option_of_other_verbs_is_answered_with_these():
    result = CliRunner().invoke(app, ["check", "--rate", "3"])
    assert result.exit_code == 2
    assert "No such option: --rate; it is an option of gallery backfill, gallery rollback" in result.output
    assert "it is an option of" not in CliRunner().invoke(app, ["check", "--nonesuch"]).output


QUIET_WORDS = ((["-q", "ls", "methods"], True), (["ls", "methods", "--quiet"], True), (["ls", "methods"], False))


@pytest.mark.parametrize(("words", "quiet"), QUIET_WORDS)
def test_quiet_may_stand_before_or_after_the_verb(words, quiet):
    assert CliRunner().invoke(app, words).exit_code == 0
    assert show.quiet is quiet
