"""Every page of help at 80 columns: no line is wider, and no summary of a command is cut off."""

import re
import shlex

import pytest
import typer
from typer.testing import CliRunner

from holdfast.cli import app


def _pages(command, words=()):
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from _pages(inner, (*words, name))


PAGES = list(_pages(typer.main.get_command(app)))


def test_every_verb_has_a_page():
    assert {("demo",), ("gallery", "add"), ("theory", "toy")} < set(PAGES)


@pytest.mark.parametrize("words", PAGES, ids=lambda words: shlex.join(words) or "holdfast")
def test_nothing_is_cut_off(words):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    assert not [line for line in result.stdout.splitlines() if len(line) > 80]
    _, _, summaries = result.stdout.partition("\nCommands:\n")
    cut = [line for line in summaries.splitlines() if re.search(r"(\.\.\.|…)$", line)]
    assert not cut
